"""Phases of a running trial, as they are seen from outside: in the log of the coordinator and in the trial folder.

Compute and exchange are not logged while they last. The coordinator logs when the first worker begins the step of a
declared event; the compute then takes the declared time, and the exchange at least the time in the plan.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.faults.cells import MatrixCell
from compose.runs.trials.log_tail import LogTail
from services.checkpoints.folder import FOLDER_NAME
from services.plan import COORDINATOR, TrainingPlan

LogEvent: TypeAlias = Mapping[str, Any]
POLL_INTERVAL_S = 0.002  # wall seconds
EXCHANGE_DELAY_S = 0.015  # virtual, from the end of the compute to the kill, which is then in the exchange
DEATH_DELAY_S = 0.02  # virtual, within which a node has ended after SIGKILL was requested from the Docker daemon


@dataclass(frozen=True)
class PhasePeriod:
    """Begin and end of a phase, in virtual seconds by the clock of the log."""

    begin_s: float
    end_s: float | None  # None: the phase has not ended before the trial

    def contains_death(self, kill_s: float) -> bool:
        """Return whether a node that is killed at a moment has ended in this phase."""
        return self.begin_s <= kill_s and (self.end_s is None or kill_s + DEATH_DELAY_S <= self.end_s)


@dataclass
class PhaseWatcher:
    """Waits for the phase in which the node of a cell is killed, and finds out later when the phase was."""

    cell: MatrixCell
    plan: TrainingPlan
    trial_folder: Path
    _events: list[LogEvent] = field(default_factory=list)  # of the coordinator, up to now
    _checkpoint_begin_s: float | None = None

    def __post_init__(self) -> None:
        self._log = LogTail(self.trial_folder / "logs" / f"{COORDINATOR}.log")

    def wait_for_nodes(self, is_over: Callable[[], bool]) -> bool:
        """Wait until all nodes run: the coordinator has begun its log. Return whether they do before `is_over`."""
        return self._wait_until(lambda: self._find_event_s("init_start"), is_over) is not None

    def wait_for_phase(self, is_over: Callable[[], bool]) -> bool:
        """Wait for the moment of the kill, and return whether it has come before `is_over` returns True."""
        delay_s = self._compute_s + EXCHANGE_DELAY_S if self.cell.phase == "exchange" else 0.0
        begin_s = self._wait_until(self._find_begin_s, is_over)
        if begin_s is not None and delay_s:
            time.sleep(max(0.0, begin_s + delay_s - self.now_s()) * self.plan.dilation)
        return begin_s is not None

    def find_period(self) -> PhasePeriod | None:
        """Return when the phase was, after the end of the trial; None if there was none."""
        self._read_events()
        begin_s = self._find_begin_s()
        if begin_s is None:
            return None
        match self.cell.phase:
            case "compute":
                return PhasePeriod(begin_s, begin_s + self._compute_s)
            case "exchange":
                begin_s += self._compute_s
                exchange_s = self.plan.predicted.exchange_s * self.plan.exchange_period
                return PhasePeriod(begin_s, begin_s + exchange_s)
            case "teardown":
                return PhasePeriod(begin_s, None)  # the exit code of the node shows that it was killed before its end
        end_keys = {"gate": "run_start", "evaluation": "eval_stop", "switch": "switch_committed"}
        return PhasePeriod(begin_s, self._find_event_s(end_keys.get(self.cell.phase, "checkpoint_complete")))

    def now_s(self) -> float:
        """Return the time by the clock of the log, whose differences are virtual seconds."""
        monotonic_s = time.monotonic()
        return time.time() - monotonic_s + monotonic_s / self.plan.dilation

    @property
    def events(self) -> Iterable[LogEvent]:
        """Events in the log of the coordinator up to now."""
        self._read_events()
        return self._events

    @property
    def _compute_s(self) -> float:
        """Virtual seconds of the compute of one step."""
        return self.plan.predicted.compute_s

    def _find_begin_s(self) -> float | None:
        """Return when the phase has begun (compute: the step; exchange: the step, too), or None before that."""
        match self.cell.phase:
            case "gate":
                return self._find_membership_s("joined")
            case "compute" | "exchange":
                return self._find_event_s("event_due")
            case "evaluation":
                return self._find_event_s("eval_start")
            case "switch":
                return self._find_event_s("switch_prepared")
            case "checkpoint":
                return self._find_checkpoint_begin_s()
            case "teardown":
                return self._find_membership_s("left")

    def _find_membership_s(self, change: str) -> float | None:
        """Return when the node of the cell has joined or left, or any node if that node is the coordinator."""
        values = (
            [{"node": node.name, "event": change} for node in self.plan.nodes]
            if self.cell.role == "coordinator"
            else [{"node": self.cell.node_name, "event": change}]
        )
        times_s = (event["time_ms"] / 1e3 for event in self._events if event["value"] in values)
        return next(times_s, None)

    def _find_checkpoint_begin_s(self) -> float | None:
        """Return when the folder of the first checkpoint was seen first."""
        if self._checkpoint_begin_s is None and any((self.trial_folder / FOLDER_NAME).glob("step-*")):
            self._checkpoint_begin_s = self.now_s()
        return self._checkpoint_begin_s

    def _find_event_s(self, key: str) -> float | None:
        """Return the time of the first event with a key; None if there is none."""
        return next((event["time_ms"] / 1e3 for event in self._events if event["key"] == key), None)

    def _read_events(self) -> None:
        self._events.extend(self._log.read_new_events())

    def _wait_until(self, find_s: Callable[[], float | None], is_over: Callable[[], bool]) -> float | None:
        """Wait until `find_s` returns a moment, and return it; None if `is_over` returns True before."""
        while not is_over():
            self._read_events()
            if (moment_s := find_s()) is not None:
                return moment_s
            time.sleep(POLL_INTERVAL_S)
        return None
