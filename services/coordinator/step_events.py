"""Start of the events that wait for a training step, and that no worker applies itself."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.cluster.events import PlannedEvent
from services.runtime.clock import Clock
from services.runtime.run_log import RunLog


@dataclass
class StepEventStarts:
    """Start times of events of links, messages and nodes that are declared for a training step.

    The first worker that begins the step starts a link event. An event of messages or a fault of some workers starts
    when the first of these does.
    """

    events: Sequence[PlannedEvent]
    clock: Clock
    log: RunLog
    _start_futures: dict[int, asyncio.Future[float]] = field(default_factory=dict)  # by number of the event

    def report_step_start(self, worker_name: str, step: int) -> None:
        """Record that a worker begins a step, and start the events that are due.

        Events of the scenario are due if they are declared for this step or an earlier one.
        """
        for event in self.events:
            start = self._start_future(event.number)
            if event.is_due_at_step_of(worker_name, step) and not start.done():
                start.set_result(self.clock.now())
                self.log.log_event("event_due", {"number": event.number, "step": step})

    async def await_start(self, event_number: int) -> float:
        """Wait until an event begins that the scenario declares for a training step.

        Return its start time in virtual seconds.
        """
        # The cancellation of one call must not cancel the calls of other nodes.
        return await asyncio.shield(self._start_future(event_number))

    def started_at(self, event_number: int) -> float | None:
        """Return when an event has begun, in virtual seconds; None if it has not."""
        start = self._start_future(event_number)
        return start.result() if start.done() else None

    def _start_future(self, event_number: int) -> asyncio.Future[float]:
        return self._start_futures.setdefault(event_number, asyncio.get_running_loop().create_future())
