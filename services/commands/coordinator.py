"""Coordinator of a trial whose workers run a command: start gate, common start of training, metrics, and end."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite

from services.coordinator.step_events import StepEventStarts
from services.plan import COORDINATOR, CommandPlan
from services.runtime.clock import Clock
from services.runtime.run_log import RunLog
from services.schema.errors import AuthenticationError

LATER_REPORT_TIMEOUT_S = 2.0  # within which nodes report ends of their commands that have one cause


@dataclass
class CommandCoordinator:
    """Coordinator of a trial that runs a command.

    Nodes call its public methods, each of which returns the coordinator's reply.

    The training starts when the last node begins its first step. A node does not wait for the others there: a node may
    be unable to begin before another one has sent data, as in a pipeline. So the start is known afterwards: when all
    nodes have reported their first step, or a node has completed it. The training ends at the end of the last step, or
    at the last evaluation, if that is later.
    """

    plan: CommandPlan
    clock: Clock
    log: RunLog
    run_finished: asyncio.Event = field(default_factory=asyncio.Event)
    _joined: set[str] = field(default_factory=set)
    _first_step_begins_s: dict[str, float] = field(default_factory=dict)  # by node
    _early_metrics: list[tuple[Mapping[str, float], int, int]] = field(default_factory=list)  # before the training
    _end_s: float = 0.0  # of the training so far, from evaluations and from the nodes that have left; 0: unknown
    _has_measured_steps: bool = False
    _left: set[str] = field(default_factory=set)
    _independent_ends: dict[str, str] = field(default_factory=dict)  # node -> how its command has ended
    _has_independent_end: asyncio.Event = field(default_factory=asyncio.Event)
    _is_gate_open: bool = False
    _commands_start: asyncio.Event = field(default_factory=asyncio.Event)
    _training_start: asyncio.Event = field(default_factory=asyncio.Event)
    _training_start_s: float = 0.0
    _evaluations: int = 0
    _has_reached_target: bool = False
    _divergence_reason: str = ""
    _steps: int = 0
    _samples: int = 0

    def __post_init__(self) -> None:
        self.log.log_start("init_start")

    @cached_property
    def step_events(self) -> StepEventStarts:
        """Start times of link events and faults of nodes that wait for a training step."""
        return StepEventStarts(self.plan.events, self.clock, self.log)

    async def join(self, node_name: str, plan_sha256: str) -> float:
        """Register a ready node, wait until all commands may start, and return the time in virtual seconds.

        Raises:
            AuthenticationError: the node does not belong to this run, or was started with another plan.
        """
        if node_name not in self._node_names:
            raise AuthenticationError(f"{node_name} is not a node of this run")
        if plan_sha256 != self.plan.sha256:
            raise AuthenticationError(f"{node_name} was started with a plan that differs from the coordinator's")
        self._joined.add(node_name)
        self.log.log_event("membership", {"node": node_name, "event": "joined"})
        self._start_commands_when_ready()
        await self._commands_start.wait()
        return self.clock.now()

    async def open_start_gate(self) -> None:
        """Record that the network is set up.

        Commands may start as soon as all nodes have joined.
        """
        self._is_gate_open = True
        self._start_commands_when_ready()

    def report_first_step(self, node_name: str, begin_s: float) -> None:
        """Record when a node has begun its first step, in virtual seconds."""
        self._first_step_begins_s[node_name] = begin_s
        if self._first_step_begins_s.keys() == self._node_names:
            self._start_training()

    def complete_first_step(self) -> float:
        """Record that a node has completed its first step, and return the start of the training in virtual seconds."""
        self._start_training()
        return self._training_start_s

    async def await_training_start(self) -> float:
        """Wait until the training has started, and return its start in virtual seconds."""
        await self._training_start.wait()
        return self._training_start_s

    def _start_training(self) -> None:
        if self._training_start.is_set():
            return
        self._training_start_s = max(self._first_step_begins_s.values())
        self.log.backdated(self._training_start_s).log_end("init_stop")
        self.log.backdated(self._training_start_s).log_start("run_start")
        self._training_start.set()
        for values, step, samples in self._early_metrics:
            self._log_evaluation(values, step, samples, self._training_start_s)

    def report_metrics(self, values: Mapping[str, float], step: int, samples: int) -> None:
        """Log metrics that the command of rank 0 has written, as an evaluation of the model.

        An evaluation before the training is logged at the start of the training.
        """
        if self._training_start.is_set():
            self._log_evaluation(values, step, samples, self.clock.now())
        else:
            self._early_metrics.append((values, step, samples))

    def _log_evaluation(self, values: Mapping[str, float], step: int, samples: int, time_s: float) -> None:
        self._evaluations += 1
        self._end_s = max(self._end_s, time_s)
        log = self.log.backdated(time_s)
        labels = {"epoch_num": self._evaluations, "samples_count": samples}
        log.log_start("eval_start", **labels)
        values = {name: values[name] for name in self.plan.workload.metrics if name in values}  # messages have no order
        metric = self.plan.target.metric if self.plan.target else next(iter(values), "")
        if metric in values:
            log.log_event("eval_accuracy", values[metric], **labels, metric=metric)
        log.log_event("eval_metrics", dict(values), **labels, step=step)
        log.log_end("eval_stop", **labels)
        self._has_reached_target |= self.plan.target is not None and self.plan.target.is_reached(values)
        if not self._divergence_reason:
            names = [name for name, value in values.items() if not isfinite(value)]
            self._divergence_reason = f"training diverged: {names[0]} is {values[names[0]]}" if names else ""

    async def report_process_end(self, node_name: str, description: str, *, has_lost_connection: bool) -> str:
        """Record how the process of a command has ended, and return how the first one on another node has ended.

        Ends of processes that have lost their connection are not returned: they have a cause on another node, which may
        be reported a little later. The result is empty if there is none.
        """
        if has_lost_connection:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._has_independent_end.wait(), LATER_REPORT_TIMEOUT_S)
        else:
            self._independent_ends[node_name] = description
            self._has_independent_end.set()
        return next((end for name, end in self._independent_ends.items() if name != node_name), "")

    async def leave(self, node_name: str, step: int, samples: int, last_step_end_s: float) -> None:
        """Record that the command of a node has ended after so many steps and samples of its own.

        `last_step_end_s` is the end of its last step in virtual seconds, or 0 if its steps were not measured.

        The call returns when all commands have ended: a node stays, so that its link can be checked after the run.
        """
        self._left.add(node_name)
        self._steps, self._samples = max(self._steps, step), self._samples + samples
        self._end_s, self._has_measured_steps = (
            max(self._end_s, last_step_end_s),
            self._has_measured_steps or last_step_end_s > 0,
        )
        self.log.log_event("membership", {"node": node_name, "event": "left"})
        if self._left == self._node_names:
            self._finish_run()
        await self.run_finished.wait()

    @cached_property
    def _node_names(self) -> set[str]:
        return {node.name for node in self.plan.nodes} - {COORDINATOR}

    def _start_commands_when_ready(self) -> None:
        if self._is_gate_open and self._joined == self._node_names:
            self._commands_start.set()

    def _finish_run(self) -> None:
        is_target_missed = self.plan.target is not None and not self._has_reached_target
        log = self.log.backdated(self._end_s) if self._has_measured_steps else self.log
        log.log_end(
            "run_stop",
            status="aborted" if is_target_missed or self._divergence_reason else "success",
            target_reached=self._has_reached_target,
            diverged=bool(self._divergence_reason),
            reason=self._divergence_reason or ("target missed" if is_target_missed else "all commands ended"),
            samples_count=self._samples,
            step=self._steps,
        )
        self.run_finished.set()
