"""Faults of nodes that a scenario declares, applied to processes or containers while a trial runs."""

import heapq
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from compose.runs.trials.log_moments import LogMoments
from compose.runs.trials.node_runner import NodeProcessControl, TrialFailed
from services.cluster.events import PlannedEvent
from services.cluster.node_faults import NodeAction
from services.node.exit_codes import EXIT_EVICTED
from services.plan import Plan
from services.plan.lost_nodes import (
    explain_active_faults,
    explain_declared_loss,
    restart_delay_s,
    tolerates_lost_node,
)

BEGIN, END = "begin", "end"
EXIT_KILLED = 137  # exit code of a container whose process was killed by a signal, or used up its memory
MAX_THREADS = 32  # that apply a fault to its nodes
STEP_POLL_INTERVAL_S = 0.002  # wall seconds between two looks at the log while a fault waits for a training step


class _FaultBoundary(NamedTuple):
    """Begin or end of a fault that is due at a moment of the monotonic clock."""

    due_s: float
    number: int  # orders boundaries of the same moment
    event: PlannedEvent
    boundary: str  # BEGIN or END
    node_names: tuple[str, ...]


@dataclass
class NodeFaultInjector:
    """Applies the declared faults of nodes of one trial, and records when.

    The supervisor passes it the events of the coordinator's log, and calls `apply_due_faults` often.
    """

    plan: Plan
    control: NodeProcessControl
    record_path: Path  # receives one line of JSON per begin or end of a fault
    lost_nodes: set[str] = field(default_factory=set)  # nodes that a fault has ended, and the trial goes on without
    _active: dict[int, tuple[PlannedEvent, tuple[str, ...]]] = field(default_factory=dict)  # faults that have not ended
    _due: list[_FaultBoundary] = field(default_factory=list)  # heap
    _restarts: list[tuple[float, str]] = field(default_factory=list)  # heap: moment and node, after undeclared ends
    _numbers: count = field(default_factory=count)  # type: ignore[type-arg]  # `count` is generic in stubs only
    _training_start_s: float | None = None  # moment of the monotonic clock at which training began
    _steps_awaited: set[int] = field(default_factory=set)  # numbers of the faults that wait for a training step

    def __post_init__(self) -> None:
        self._faults = {event.number: event for event in self.plan.events if event.is_node_fault}
        self._log_moments = LogMoments(self.plan.dilation)

    def handle_log_event(self, log_event: Mapping[str, Any]) -> None:
        """Handle an event of the coordinator's log: the start of training, or the step at which a fault begins."""
        if not self._faults:
            return
        if log_event["key"] == "run_start" and self._training_start_s is None:
            self._training_start_s = self._log_moments.to_monotonic_s(log_event)
            self._steps_awaited = {number for number, event in self._faults.items() if event.step is not None}
            for event in self._faults.values():
                if event.time_s is not None:
                    self._schedule(self._training_start_s + event.time_s * self.plan.dilation, event, BEGIN)
        elif log_event["key"] == "event_due" and log_event["value"]["number"] in self._faults:
            self._steps_awaited.discard(log_event["value"]["number"])
            self._schedule(
                self._log_moments.to_monotonic_s(log_event), self._faults[log_event["value"]["number"]], BEGIN
            )

    def seconds_until_next_look(self, longest_s: float) -> float:
        """Return the wall seconds, at most `longest_s`, after which the log or the faults must be looked at again."""
        if self._steps_awaited:
            longest_s = min(longest_s, STEP_POLL_INTERVAL_S)
        return max(0.0, min(longest_s, self._due[0].due_s - time.monotonic())) if self._due else longest_s

    def apply_due_faults(self, ended_nodes: set[str]) -> None:
        """Apply all faults whose moment has come, to those of their nodes that have not ended.

        Raises:
            TrialFailed: a fault has ended a node without which the trial can't go on.
        """
        while self._restarts and self._restarts[0][0] <= time.monotonic():
            _, node_name = heapq.heappop(self._restarts)
            self.control.apply_action("start", node_name)
            self.lost_nodes.discard(node_name)
        while self._due and self._due[0].due_s <= time.monotonic():
            boundary = heapq.heappop(self._due)
            if boundary.boundary == BEGIN:
                self._begin_fault(boundary, ended_nodes)
            else:
                self._apply_action(boundary, boundary.event.node_fault.end_action or "start")
                if boundary.event.node_fault.ends_nodes:
                    self.lost_nodes.difference_update(boundary.node_names)
                self._active.pop(boundary.event.number, None)

    def handle_unexpected_end(self, node_name: str, exit_code: int) -> bool:
        """Handle the end of a node that no declared fault has ended, and return whether the trial goes on.

        It does if the node was killed or evicted, and the policy of the trial tolerates it; the node is started again
        if the policy says so.
        """
        is_lost = exit_code < 0 or exit_code in (EXIT_KILLED, EXIT_EVICTED)
        if not is_lost or not tolerates_lost_node(self.plan, node_name):
            return False
        self.lost_nodes.add(node_name)
        if self.plan.recovery.restarts_workers:
            due_s = time.monotonic() + self.plan.recovery.restart_delay * self.plan.dilation
            heapq.heappush(self._restarts, (due_s, node_name))
        return True

    def explain_active_faults(self) -> str:
        """Return which nodes are stopped or away, as the end of an error's text; empty if none is."""
        return explain_active_faults(self._active.values())

    def _begin_fault(self, begin: _FaultBoundary, ended_nodes: set[str]) -> None:
        fault = begin.event.node_fault
        gone = ended_nodes | self.lost_nodes  # another fault may have ended a node since its exit code was read
        begin = begin._replace(node_names=tuple(name for name in fault.of if name not in gone))
        if fault.ends_nodes:
            self.lost_nodes.update(begin.node_names)
        delay_s = restart_delay_s(self.plan, begin.event) if begin.node_names else fault.lasts
        if delay_s is not None:
            end_s = begin.due_s + delay_s * self.plan.dilation
            self._schedule(end_s, begin.event, END, begin.node_names)
        self._apply_action(begin, fault.begin_action)
        self._active[begin.event.number] = (begin.event, begin.node_names)
        for name in begin.node_names:
            if fault.ends_nodes and not tolerates_lost_node(self.plan, name):
                raise TrialFailed(explain_declared_loss(begin.event, name))

    def _apply_action(self, boundary: _FaultBoundary, action: NodeAction) -> None:
        """Apply an action to nodes and record when; a failure is recorded and fails the trial."""
        failure, begin_s = "", time.monotonic()
        try:
            self._apply_to_nodes(action, boundary.node_names)
        except Exception as error:
            failure = f"{error or type(error).__name__}"
            raise
        finally:
            self._record(boundary, self.control.describe_mechanism(action), failure, begin_s)

    def _apply_to_nodes(self, action: NodeAction, node_names: Sequence[str]) -> None:
        """Apply an action to nodes, at the same time where they do not have to be started one after the other."""
        if action == "start":
            for name in node_names:
                self.control.apply_action(action, name)
            return
        with ThreadPoolExecutor(MAX_THREADS) as pool:
            for _ in pool.map(partial(self.control.apply_action, action), node_names):
                pass

    def _record(self, boundary: _FaultBoundary, mechanism: str, failure: str, begin_s: float) -> None:
        """Record a change of nodes: how late the engine began it, and how long it took until the nodes had changed."""
        now_s = time.monotonic()
        record = {
            "number": boundary.event.number,
            "kind": boundary.event.change.kind,
            "planned_s": self._to_training_s(boundary.due_s),
            "applied_s": None if failure else self._to_training_s(now_s),
            "lateness_s": None if failure else round((begin_s - boundary.due_s) / self.plan.dilation, 6),
            "seconds": round((now_s - begin_s) / self.plan.dilation, 6),
            "phase": boundary.boundary,
            "by": mechanism,
            "nodes": sorted(boundary.node_names),
        }
        with self.record_path.open("a") as file:
            file.write(json.dumps(record | ({"failed": failure} if failure else {})) + "\n")

    def _schedule(self, due_s: float, event: PlannedEvent, boundary: str, node_names: tuple[str, ...] = ()) -> None:
        heapq.heappush(self._due, _FaultBoundary(due_s, next(self._numbers), event, boundary, node_names))

    def _to_training_s(self, monotonic_s: float) -> float:
        """Convert a moment of the monotonic clock to virtual seconds since the start of training."""
        return round((monotonic_s - (self._training_start_s or monotonic_s)) / self.plan.dilation, 6)
