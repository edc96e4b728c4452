"""When does a worker compute? As fast as the host, or exactly as fast as the device that it stands for.

A paced worker does the real mathematics at its own place within the step and then waits for the absolute end of the
phase, so the step takes what the declared device would take, however busy the host is. What ends late is recorded.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from services.clock import Clock

Result = TypeVar("Result")

# Workers that a barrier wakes together queue behind each other's mathematics and would take their start time late. A
# sleep before the mathematics lets all of them take it first (8 workers on two cores: steps 24 % too long without it,
# 2 % with it).
GUARD_WALL_S = 0.002
GUARD_SHARE = 0.25  # of a short step
MEMORY = 0.8  # weight of the past in the running mean of the mathematics' time


class Pace(ABC):
    """How fast a worker is."""

    @abstractmethod
    async def compute(self, samples: int, work: Callable[[], Result]) -> tuple[Result, float | None]:
        """Do the mathematics of `samples` samples; its result, and how late it was (None when nothing was declared)."""

    @abstractmethod
    async def learn(self, work: Callable[[], Result]) -> None:
        """Do some mathematics before anything is timed, to know how long it takes."""


@dataclass(frozen=True)
class HostSpeed(Pace):
    """As fast as this host."""

    clock: Clock

    async def compute(self, samples: int, work: Callable[[], Result]) -> tuple[Result, float | None]:  # noqa: ARG002
        return await self.clock.run(work), None

    async def learn(self, work: Callable[[], Result]) -> None:
        await self.clock.run(work)


@dataclass
class Paced(Pace):
    """A device that does `throughput` samples per virtual second."""

    clock: Clock
    throughput: float
    slot: float  # of this worker among those of the host, in [0, 1)
    _work_s: float = field(default=0.0)  # what the mathematics takes, running mean

    async def compute(self, samples: int, work: Callable[[], Result]) -> tuple[Result, float | None]:
        started = self.clock.now()
        duration = samples / self.throughput
        await self.clock.sleep_until(started + self._offset(duration))
        result = await self._timed(work)
        deadline = started + duration
        await self.clock.sleep_until(deadline)
        return result, max(0.0, self.clock.now() - deadline)

    async def learn(self, work: Callable[[], Result]) -> None:
        await self._timed(work)

    def _offset(self, duration: float) -> float:
        """When in a phase of `duration` the mathematics starts: after the guard, in this worker's slot."""
        guard = min(GUARD_WALL_S / self.clock.wall(1.0), GUARD_SHARE * duration)
        return guard + self.slot * max(0.0, duration - guard - 2 * self._work_s)

    async def _timed(self, work: Callable[[], Result]) -> Result:
        started = self.clock.now()
        result = await self.clock.run(work)
        self._work_s = MEMORY * self._work_s + (1 - MEMORY) * (self.clock.now() - started)
        return result
