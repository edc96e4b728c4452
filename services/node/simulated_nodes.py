"""Nodes of a trial in virtual time, and their faults: tasks of nodes are cancelled, held up and started again."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from services.cluster.events import PlannedEvent
from services.cluster.node_faults import COORDINATOR, NodeAction
from services.coordinator.runtime import CoordinatorRuntime
from services.plan import TrainingPlan
from services.plan.lost_nodes import (
    explain_active_faults,
    explain_declared_loss,
    restart_delay_s,
    tolerates_lost_node,
)
from services.plan.partitions import explain_partitions, partition_events
from services.schema.errors import DeclaredNodeLoss, NetworkError, first_error_in_group, is_caused_by_eviction
from services.transport.virtual import VirtualFabric

MECHANISM = "simulation"


@dataclass
class SimulatedNodes:
    """Nodes of a trial in virtual time, with the faults that the scenario declares.

    Peers of a killed node get the errors that broken connections cause.
    """

    plan: TrainingPlan
    runtime: CoordinatorRuntime
    fabric: VirtualFabric
    run_node: Callable[[str], Coroutine[None, None, None]]  # runs a node, given by its name, from start to end
    _node_tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)  # by node, without the coordinator
    _restart_tasks: list[asyncio.Task[None]] = field(default_factory=list)  # of evicted nodes
    _away: set[str] = field(default_factory=set)  # nodes that a fault has ended, and that have not been started again
    _active: dict[int, tuple[PlannedEvent, list[str]]] = field(default_factory=dict)  # faults that have not ended

    async def run_nodes(self) -> None:
        """Run all nodes to the end of the trial, and apply the faults at their times.

        Raises:
            ExceptionGroup: of DeclaredNodeLoss, if the trial can't go on without a lost node; of NetworkError and other
                errors of nodes.
        """
        with self._explain_errors():
            async with asyncio.TaskGroup() as fault_group:
                async with asyncio.TaskGroup() as self._node_group:
                    for node in self.plan.nodes:
                        if node.name != COORDINATOR:
                            self._start_node(node.name)
                    faults = fault_group.create_task(self._run_faults())
                    if self.plan.recovery.is_active:
                        wait_until_running = partial(self.fabric.wait_until_running, COORDINATOR)
                        watch_heartbeats = self.runtime.membership.watch_heartbeats
                        fault_group.create_task(watch_heartbeats(self.runtime.run_finished, wait_until_running))
                    await self.runtime.open_start_gate()
                    await self.runtime.run_finished.wait()  # lost nodes may still be started again
                    self.runtime.raise_error()
                faults.cancel()

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Raise only the loss that ended the trial, or name stopped and separated nodes beside the error of a peer.

        Raises:
            ExceptionGroup: of the errors of the `with` block.
            DeclaredNodeLoss: instead of a network error, if nodes are stopped or away.
            NetworkError: of a peer, if a partition has separated nodes.
        """
        try:
            yield
        except ExceptionGroup as errors:
            if losses := errors.subgroup(DeclaredNodeLoss):  # its peers have lost their connections
                raise losses from None
            cause, away = first_error_in_group(errors), explain_active_faults(self._active.values())
            separated = self._explain_partitions()
            if not (away or separated) or not isinstance(cause, NetworkError):
                raise
            if away:
                raise DeclaredNodeLoss(f"{type(cause).__name__}: {cause}{away}{separated}") from errors
            raise type(cause)(f"{cause}{separated}") from errors

    def _explain_partitions(self) -> str:
        starts_s = {event.number: self.runtime.find_event_start_s(event) for event in partition_events(self.plan)}
        begun_s = {number: start_s for number, start_s in starts_s.items() if start_s is not None}
        return explain_partitions(self.plan, begun_s, self.runtime.clock.now())

    def _start_node(self, node_name: str) -> None:
        self._node_tasks[node_name] = self._node_group.create_task(self._run_until_evicted(node_name))

    async def _run_until_evicted(self, node_name: str) -> None:
        """Run a node to its end, or until it learns that training goes on without it.

        Raises:
            Exception: the node has ended with another error.
        """
        try:
            await self.run_node(node_name)
        except Exception as error:
            if not is_caused_by_eviction(error):
                raise
            self.fabric.lose_node(node_name)
            if self.plan.recovery.restarts_workers and not self.runtime.run_finished.is_set():
                self._restart_tasks.append(self._node_group.create_task(self._restart_later(node_name)))

    async def _restart_later(self, node_name: str) -> None:
        await self.runtime.clock.sleep_until(self.runtime.clock.now() + self.plan.recovery.restart_delay)
        await self._apply_action("start", [node_name])

    async def _run_faults(self) -> None:
        async with asyncio.TaskGroup() as group:
            for event in self.plan.events:
                if event.is_node_fault:
                    group.create_task(self._run_fault(event))

    async def _run_fault(self, event: PlannedEvent) -> None:
        training_start_s = await self.runtime.await_run_start()
        if event.time_s is None:
            start_s = await self.runtime.step_events.await_start(event.number)
        else:
            start_s = training_start_s + event.time_s
        fault = event.node_fault
        await self.runtime.clock.sleep_until(start_s)
        node_names = [name for name in fault.of if name not in self._away and not self._has_ended(name)]
        if fault.ends_nodes:
            self._away.update(node_names)
        await self._apply_action(fault.begin_action, node_names)
        self._active[event.number] = (event, node_names)
        self._log_event_time(event, "begin", start_s - training_start_s, node_names)
        if fault.ends_nodes:
            self._check_losses(event, node_names)
        delay_s = restart_delay_s(self.plan, event) if node_names else fault.lasts
        if delay_s is not None:
            await self.runtime.clock.sleep_until(start_s + delay_s)
            await self._apply_action(fault.end_action or "start", node_names)
            del self._active[event.number]
            self._log_event_time(event, "end", start_s + delay_s - training_start_s, node_names)

    def _has_ended(self, node_name: str) -> bool:
        task = self._node_tasks.get(node_name)  # the coordinator has none, and is the last to end
        return task is not None and task.done()

    def _check_losses(self, event: PlannedEvent, lost_nodes: Iterable[str]) -> None:
        for name in lost_nodes:
            if not tolerates_lost_node(self.plan, name):
                raise DeclaredNodeLoss(explain_declared_loss(event, name))

    async def _apply_action(self, action: NodeAction, node_names: Iterable[str]) -> None:
        for name in node_names:
            match action:
                case "kill" | "exhaust_memory":
                    await self._kill_node(name)
                case "freeze":
                    self.fabric.freeze_node(name)
                case "thaw":
                    self.fabric.thaw_node(name)
                case "start":
                    self._away.discard(name)
                    self.fabric.recover_node(name)
                    self._start_node(name)

    async def _kill_node(self, node_name: str) -> None:
        if node_name != COORDINATOR:  # without it, the trial ends anyway
            self._node_tasks[node_name].cancel()
            await asyncio.wait([self._node_tasks[node_name]])
        self.fabric.lose_node(node_name)

    def _log_event_time(self, event: PlannedEvent, begin_or_end: str, planned_s: float, node_names: list[str]) -> None:
        """Log when a fault begins or ends; it concerns no node if all of its nodes were away already."""
        value = {
            "number": event.number,
            "kind": event.change.kind,
            "phase": begin_or_end,
            "by": MECHANISM,
            "planned_s": round(planned_s, 6),
            "applied_s": round(planned_s, 6),
            "lateness_s": 0.0,
            "nodes": node_names,
        }
        self.runtime.log.log_event("event_applied", value)
