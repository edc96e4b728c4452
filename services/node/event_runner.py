"""How do events happen inside a node? At their moments it changes what they change, and logs how late that was.

Slowdowns and pauses are applied by the workers that they are of, each when it begins the step itself where they wait
for one. Mathematics heeds their times and no timer, so the lateness that is logged for them is that of the note. Events
of links are applied by every node to its own view of the network where the transport shapes it, and logged by the nodes
whose links they are; where a kernel shapes links, nodes have nothing to do with them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf

from services.cluster.events import Event, Slowdown
from services.cluster.link_conditions import Conditions
from services.plan import NodePlan, Plan
from services.runtime.clock import Clock
from services.runtime.control import CoordinatorClient
from services.runtime.run_log import RunLog
from services.runtime.slowdowns import WorkerSlowdowns


@dataclass
class Timeline:
    """The events of a trial, as one node plays them."""

    plan: Plan
    me: NodePlan
    control: CoordinatorClient
    clock: Clock
    log: RunLog
    conditions: Conditions | None  # of the links that the transport shapes
    hindrances: WorkerSlowdowns = field(default_factory=WorkerSlowdowns)
    _zero: float = 0.0
    _begun: int = -1  # the step that this worker is in
    _playing: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def since(self, zero: float) -> AsyncIterator[None]:
        """Play what happens while the body runs; training began at `zero`."""
        self._zero = zero
        for event in self.plan.events:
            if event.is_of_links and self.conditions is not None:
                self._start(self._play_link(event, self.conditions))
            elif self._is_mine(event) and event.time_s is not None:
                self._start(self._play_own(event, zero + event.time_s))
        try:
            yield
        finally:
            for task in self._playing:
                task.cancel()
            ended = await asyncio.gather(*self._playing, return_exceptions=True)
            for error in ended:
                if isinstance(error, Exception):  # a cancellation is none
                    raise error

    async def step_begins(self, step: int) -> None:
        """This worker begins a step: events may wait for that, its own and those of links.

        Or for one that it skips: after a switch all begin beyond the step of the fastest.
        """
        waiting = [event for event in self.plan.events if event.step is not None and self._begun < event.step <= step]
        self._begun = step
        for event in waiting:
            if self._is_mine(event):
                self._start(self._play_own(event, self.clock.now()))
        if any(event.is_of_links for event in waiting):
            await self.control.report_step(step)

    def _is_mine(self, event: Event) -> bool:
        return not event.is_of_links and self.me.name in event.what.nodes

    def _start(self, play: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(play)
        self._playing.add(task)

    def _play_own(self, event: Event, begins: float) -> Coroutine[None, None, None]:
        """The hindrance is known from now on, with its times: mathematics heeds it to the moment, not to a timer."""
        factor = event.what.factor if isinstance(event.what, Slowdown) else inf
        self.hindrances.add(begins, event.what.lasts, factor)
        return self._play(event, begins, "worker", lambda: None, lambda: None)

    async def _play_link(self, event: Event, conditions: Conditions) -> None:
        begins = await self.control.await_event(event.number) if event.time_s is None else self._zero + event.time_s
        await self._play(event, begins, "transport", lambda: conditions.begin(event), lambda: conditions.end(event))

    async def _play(
        self, event: Event, begins: float, by: str, begin: Callable[[], None], end: Callable[[], None]
    ) -> None:
        await self.clock.sleep_until(begins)
        begin()
        self._note(event, "begin", begins, by)
        if event.what.lasts is not None:
            await self.clock.sleep_until(begins + event.what.lasts)
            end()
            self._note(event, "end", begins + event.what.lasts, by)

    def _note(self, event: Event, phase: str, planned: float, by: str) -> None:
        """Log what has been applied, unless it is of the links of others."""
        if self.me.name not in event.what.nodes:
            return
        value = {
            "number": event.number,
            "kind": event.what.kind,
            "phase": phase,
            "by": by,
            "planned_s": round(planned - self._zero, 6),
            "applied_s": round(self.clock.now() - self._zero, 6),
            "lateness_s": round(self.clock.now() - planned, 6),
        }
        self.log.log_event("event_applied", value)
