"""Log of the steps and collectives of a command, from the messages of the metering in its process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from services.commands.script_process.ensayo_meter.protocol import COLLECTIVE_COLUMNS
from services.commands.script_process.ensayo_meter.step_schedule import UNSTEADY_STEPS
from services.plan import CommandPlan
from services.plan.commands.command_prediction import payload_bytes_sent
from services.runtime.clock import Clock
from services.runtime.pacing import is_phase_deadline_missed
from services.runtime.run_log import STEP_COLUMNS, LogEventBatch, RunLog
from services.scenario.commands.step_profile import CollectiveCall

LOGGED_COLLECTIVE_COLUMNS = ("step", *COLLECTIVE_COLUMNS)  # of `node_collectives`; times in virtual seconds
START_STEP, END_STEP = -1, -2  # steps of the collectives before the first step, and after the last one
TIME_COLUMNS = frozenset({"launch_s", "begin_s", "end_s"})


@dataclass
class CommandStepLog:
    """Writes a row per step and a row per collective to the log of a node, and counts both."""

    plan: CommandPlan
    rank: int
    clock: Clock
    log: RunLog
    steps: int = 0
    last_step_end_s: float = 0.0  # in virtual seconds of the node's clock; 0: no step was measured
    deadlines: int = 0
    missed_deadlines: int = 0
    payload_bytes: float = 0.0  # sent since the start of the training; unknown amounts, as of gather, are left out
    scheduled_bytes: float = 0.0  # of them, those of the collectives of the dry run, in steps in steady state
    collectives: int = 0
    _unmetered_end_s: float | None = None  # end of the last step that a line of the output marked
    _has_measured_step: bool = False
    _unmetered_rows: list[list[Any]] = field(default_factory=list)  # of these steps; logged at the end
    _sent_bytes: dict[tuple[CollectiveCall, bool], float | None] = field(default_factory=dict)  # None: not known
    uncounted: set[str] = field(default_factory=set)  # operations in which ranks send unequal amounts
    gloo_fallbacks: set[str] = field(default_factory=set)  # operations that gloo has run in place of Ensayo

    def __post_init__(self) -> None:
        # Log lines and steps have one time axis, whose zero is not that of the clock.
        self._log_time_offset_s = self.clock.timestamp_ms() / 1e3 - self.clock.now()
        self._step_rows = LogEventBatch(self.log, "node_steps", STEP_COLUMNS)
        self._collective_rows = LogEventBatch(self.log, "node_collectives", LOGGED_COLLECTIVE_COLUMNS)

    def add_step(
        self, message: Mapping[str, Any], paced_compute_s: float | None, training_start_s: float = -inf
    ) -> None:
        """Log a step.

        A first step that began before the training, because it waited for slower nodes, is logged without this time.

        Args:
            message: the message `step` of the metering, with wall times.
            paced_compute_s: wall seconds that the compute of the step had to take; None: it was not paced.
            training_start_s: start of the training in virtual seconds.
        """
        self._discard_unmetered_steps()
        wall_s_per_virtual_s = self.clock.to_wall_s(1.0)
        times = {key: (message[key] or 0.0) / wall_s_per_virtual_s for key in ("begin_s", "end_s")}
        early_s = max(0.0, min(training_start_s, times["end_s"]) - times["begin_s"])
        exposed_s = max(0.0, message["exposed_s"] / wall_s_per_virtual_s - early_s)
        step_s = times["end_s"] - times["begin_s"] - early_s
        late_s = None
        if paced_compute_s is not None:
            late_s = max(0.0, step_s - exposed_s - paced_compute_s / wall_s_per_virtual_s)
            self.deadlines += 1
            self.missed_deadlines += is_phase_deadline_missed(
                self.clock, late_s, paced_compute_s / wall_s_per_virtual_s, step_s
            )
        sent_bytes = self._add_collectives(message["number"], times["begin_s"], message["collectives"])
        row = {
            "step": message["number"],
            "start_s": self._log_time_offset_s + times["begin_s"] + early_s,
            "step_s": step_s,
            "data_s": 0.0,
            "compute_s": max(0.0, step_s - exposed_s),  # with the update, to which a declared speed refers as well
            "exchange_s": exposed_s,
            "hidden_s": message["hidden_s"] / wall_s_per_virtual_s,
            "update_s": 0.0,
            "late_s": late_s,
            "samples": self.plan.workload.batch_per_worker,
            "bytes_sent": sent_bytes,
        }
        self._step_rows.add_event([row.get(column) for column in STEP_COLUMNS])
        self.steps, self.last_step_end_s = message["number"] + 1, times["end_s"]

    def add_unmetered_step(self, end_s: float) -> None:
        """Log a step of which only the end is known: it began at the end of the previous one.

        It is not logged if the metering measures steps: they would be logged twice.
        """
        if self._has_measured_step:
            return
        begin_s, self._unmetered_end_s = self._unmetered_end_s, end_s
        if begin_s is None:
            return  # the begin of the first step is not known
        row = {
            "step": self.steps,
            "start_s": self._log_time_offset_s + begin_s,
            "step_s": end_s - begin_s,
            "data_s": 0.0,
            "compute_s": end_s - begin_s,  # with all communication, which is not known
            "exchange_s": 0.0,
            "update_s": 0.0,
            "samples": self.plan.workload.batch_per_worker,
            "bytes_sent": 0.0,
        }
        self._unmetered_rows.append([row.get(column) for column in STEP_COLUMNS])
        self.steps, self.last_step_end_s = self.steps + 1, end_s

    def _discard_unmetered_steps(self) -> None:
        """Forget the steps that lines marked, because the metering measures all steps from the first one on."""
        self._unmetered_rows.clear()
        self._has_measured_step = True

    def add_last_collectives(self, rows: Sequence[Sequence[Any]]) -> None:
        """Log the collectives after the last step, and write all rows."""
        self._add_collectives(END_STEP, 0.0, rows)
        for row in self._unmetered_rows:
            self._step_rows.add_event(row)
        self._unmetered_rows.clear()
        self._step_rows.flush()
        self._collective_rows.flush()

    def _add_collectives(self, step: int, step_begin_s: float, rows: Sequence[Sequence[Any]]) -> float:
        """Log collectives, and return the payload bytes that this node sent for those of the step itself."""
        sent = 0.0
        for row in rows:
            values = dict(zip(COLLECTIVE_COLUMNS, row, strict=True))
            for column in TIME_COLUMNS:
                values[column] = None if values[column] is None else values[column] / self.clock.to_wall_s(1.0)
            is_before_start = step == 0 and values["launch_s"] < step_begin_s
            values |= {name: self._to_log_time(values[name]) for name in TIME_COLUMNS}
            logged_step = START_STEP if is_before_start else step
            self._collective_rows.add_event([logged_step, *(values[column] for column in COLLECTIVE_COLUMNS)])
            payload = self._count_collective(values)
            sent += 0.0 if is_before_start else payload
            self.scheduled_bytes += payload if step >= UNSTEADY_STEPS and not values["is_extra"] else 0.0
        return sent

    def _to_log_time(self, time_s: float | None) -> float | None:
        return None if time_s is None else round(self._log_time_offset_s + time_s, 6)

    def _count_collective(self, values: Mapping[str, Any]) -> float:
        """Return the payload bytes that this node sends for a collective, and add them to the totals."""
        call = CollectiveCall(**{key: values[key] for key in CollectiveCall.model_fields})
        self.collectives += 1
        if values["is_gloo_fallback"]:
            self.gloo_fallbacks.add(call.operation)
        runs_on_gloo = values["is_gloo_fallback"] or self.plan.process_group == "gloo"
        kind = (call, runs_on_gloo)
        if kind not in self._sent_bytes:
            self._sent_bytes[kind] = payload_bytes_sent(
                call, self.plan.command_strategy, self.plan.workers, self.rank, runs_on_gloo=runs_on_gloo
            )
        sent = self._sent_bytes[kind]
        if sent is None:
            self.uncounted.add(call.operation)
        self.payload_bytes += sent or 0.0
        return sent or 0.0
