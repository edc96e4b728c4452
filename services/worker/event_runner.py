"""Scenario events in one node: changes of speed, of links, messages and connections, and full disks.

The node applies them in time and logs their lateness.

- A worker applies its own slowdowns and pauses. An event that waits for a step begins when this worker begins the step.
  The planned times stretch the compute exactly, without a timer, so the logged lateness is that of the log line.
- Where the transport shapes links, every node applies the link events to its own view of the network. The nodes whose
  links change log them.
- Where the kernel shapes links, nodes do not apply link events.
- A node whose messages an event corrupts lets its transport flip bits in its next message, and logs that message.
- Each node drops the connections over which it sends to the other nodes of an event `drop_connection`.
- A node whose disk an event fills writes no checkpoint until the event ends.
- The engine applies faults of nodes. A worker that the engine stops for a while computes for so much longer.
- A node that was lost and has joined again applies nothing twice. Slowdowns, changes of links and full disks that began
  before and still last go on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import Random
from typing import TypeAlias

from services.checkpoints.node_disk import NodeDisk
from services.cluster.disk_full import DiskFull
from services.cluster.events import PlannedEvent
from services.cluster.links.link_conditions import ActiveLinkEvents
from services.cluster.links.message_corruption import (
    CorruptedMessage,
    MessageCorruption,
    MessageCorruptor,
    PendingCorruption,
)
from services.plan import NodePlan, Plan
from services.runtime.clock import Clock
from services.runtime.control import RunEventClient
from services.runtime.run_log import RunLog
from services.runtime.slowdowns import WorkerSlowdowns
from services.schema.errors import ProtocolError

DropConnections: TypeAlias = Callable[[Iterable[str]], None]  # to nodes, given by their names


@dataclass
class ScenarioEventRunner:
    """Applies the scenario's events in one node: changes of links, messages, connections, disks and speeds."""

    plan: Plan
    node: NodePlan
    control: RunEventClient
    clock: Clock
    log: RunLog
    link_conditions: ActiveLinkEvents | None  # current link events; None where the transport does not shape links
    corruptor: MessageCorruptor | None = None  # of the node's messages; None where no transport of Ensayo sends them
    drop_connections: DropConnections | None = None  # None where the transport can't drop connections
    disk: NodeDisk | None = None  # of the node's checkpoints; None where it writes none
    slowdowns: WorkerSlowdowns = field(default_factory=WorkerSlowdowns)
    _training_start_s: float = 0.0
    _rejoin_s: float = -inf  # when this node has joined again after its loss; earlier moments of events are past
    _current_step: int = -1  # last step that this worker has begun
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def run_events(self, training_start_s: float, *, has_joined_again: bool = False) -> AsyncIterator[None]:
        """Apply the scenario's events during the `async with` block.

        Args:
            training_start_s: virtual time from which the times of events count.
            has_joined_again: whether the node was lost, and has joined the training again.
        """
        self._training_start_s = training_start_s
        self._rejoin_s = self.clock.now() if has_joined_again else -inf
        for event in self.plan.events:
            self._start_event(event)
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            results = await asyncio.gather(*self._tasks, return_exceptions=True)
            for result in results:
                if isinstance(result, Exception):  # `CancelledError` is no `Exception`
                    raise result

    def _start_event(self, event: PlannedEvent) -> None:
        """Start the task of an event, unless it waits for a step of this worker or does not concern the node."""
        if event.is_link_event and self.link_conditions is not None:
            self._start_event_task(self._run_event_of("transport", event, self.link_conditions))
        elif isinstance(event.change, MessageCorruption) and self.corruptor and self.node.name in event.change.of:
            self._start_event_task(self._corrupt_next_message(event, event.change, self.corruptor))
        elif peers := event.dropped_peers_of(self.node.name):
            self._start_event_task(self._run_connection_drop(event, peers))
        elif isinstance(event.change, DiskFull) and self.disk and self.node.name in event.change.of:
            self._start_event_task(self._run_event_of("disk", event, self.disk))
        elif self._affects_this_worker(event) and event.time_s is not None:
            self._start_event_task(self._slow_or_pause_worker(event, self._training_start_s + event.time_s))

    async def begin_events_of_step(self, step: int) -> None:
        """Begin the scenario's events that are declared for the step `step`.

        Events are slowdowns, pauses, changes of links, messages and disks, and faults of nodes. Events of skipped steps
        begin as well: after a switch all workers continue after the step of the fastest worker. When a worker has
        joined again, its own slowdowns and pauses of earlier steps are past, except those that last to the end of the
        run.
        """
        last_step = self._current_step
        is_first_step_after_loss = last_step < 0 and self._rejoin_s > -inf
        self._current_step = max(last_step, step)  # after a recovery, steps are repeated, but not their events
        due_events = [event for event in self.plan.events if event.step is not None and last_step < event.step <= step]
        for event in due_events:
            if self._affects_this_worker(event) and not (is_first_step_after_loss and _is_past(event, step)):
                self._start_event_task(self._slow_or_pause_worker(event, self.clock.now()))
        if any(event.is_due_at_step_of(self.node.name, step) for event in due_events):
            await self.control.report_step_start(step)

    def _affects_this_worker(self, event: PlannedEvent) -> bool:
        return event.change.compute_time_factor is not None and self.node.name in event.change.node_names

    def _start_event_task(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)

    def _slow_or_pause_worker(self, slowdown_or_pause: PlannedEvent, start_s: float) -> Coroutine[None, None, None]:
        """Apply a slowdown or a pause to the worker of this node.

        Return the coroutine that logs the begin and end of the event.
        """
        change = slowdown_or_pause.change
        self.slowdowns.add_slowdown(start_s, change.lasts, change.compute_time_factor or 1.0)
        return self._apply_event_until_end(slowdown_or_pause, start_s, "worker", lambda: None, lambda: None)

    async def _run_event_of(self, applied_by: str, event: PlannedEvent, target: ActiveLinkEvents | NodeDisk) -> None:
        """Begin and end an event of the links or of the disk, also if the node was lost in between."""
        start_s = await self._await_start(event)
        begin, end = partial(target.begin_event, event), partial(target.end_event, event)
        await self._apply_event_until_end(event, start_s, applied_by, begin, end)

    async def _corrupt_next_message(
        self, event: PlannedEvent, corruption: MessageCorruption, corruptor: MessageCorruptor
    ) -> None:
        pending = PendingCorruption(
            corruption.bits,
            Random(f"{self.plan.seed} corrupt {event.number} {self.node.name}"),
            partial(self._log_corrupted_message, event),
        )
        start_s = await self._await_start(event)
        if start_s >= self._rejoin_s:
            await self._apply_event_until_end(
                event, start_s, "transport", lambda: corruptor.corrupt_next_message(pending), lambda: None
            )

    def _log_corrupted_message(self, event: PlannedEvent, message: CorruptedMessage) -> None:
        is_detectable = self.plan.security.data == "authenticated"
        value = {"number": event.number, **message.model_dump(), "is_detectable": is_detectable}
        self.log.log_event("message_corrupted", value)

    async def _run_connection_drop(self, event: PlannedEvent, peers: Sequence[str]) -> None:
        if self.drop_connections is None:
            raise ProtocolError("the plan drops connections, but the transport of this node can't")
        drop_connections = partial(self.drop_connections, peers)
        start_s = await self._await_start(event)
        if start_s >= self._rejoin_s:
            await self._apply_event_until_end(event, start_s, "transport", drop_connections, lambda: None)

    async def _await_start(self, event: PlannedEvent) -> float:
        """Return the virtual time at which an event begins; if it waits for a step, return when it begins."""
        if event.time_s is None:
            return await self.control.await_event_start(event.number)
        return self._training_start_s + event.time_s

    async def _apply_event_until_end(
        self,
        event: PlannedEvent,
        start_s: float,
        applied_by: str,
        on_begin: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        await self.clock.sleep_until(start_s)
        on_begin()
        self._log_event_time(event, "begin", start_s, applied_by)
        if event.change.lasts is not None:
            await self.clock.sleep_until(start_s + event.change.lasts)
            on_end()
            self._log_event_time(event, "end", start_s + event.change.lasts, applied_by)

    def _log_event_time(self, event: PlannedEvent, begin_or_end: str, planned_time_s: float, applied_by: str) -> None:
        """Log when a scenario event that affects this node begins or ends."""
        if self.node.name not in event.change.node_names or event.is_node_fault:  # of which the engine keeps a record
            return
        if planned_time_s < self._rejoin_s:  # logged before the loss of the node, or not applied because it was away
            return
        value = {
            "number": event.number,
            "kind": event.change.kind,
            "phase": begin_or_end,
            "by": applied_by,
            "planned_s": round(planned_time_s - self._training_start_s, 6),
            "applied_s": round(self.clock.now() - self._training_start_s, 6),
            "lateness_s": round(self.clock.now() - planned_time_s, 6),
        }
        self.log.log_event("event_applied", value)


def _is_past(event: PlannedEvent, step: int) -> bool:
    """Return whether an event of an earlier step need not be applied any more, because it does not last to the end."""
    return event.step != step and event.change.lasts is not None
