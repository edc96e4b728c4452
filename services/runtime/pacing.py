"""When does a worker compute? As fast as the host, or exactly as fast as the device that it stands for.

A paced worker does the real mathematics at its own place within the step and then waits for the absolute end of the
phase, so the step takes what the declared device would take, however busy the host is. What ends late is recorded.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar

from services.runtime.clock import Clock
from services.runtime.slowdowns import Hindrances

Result = TypeVar("Result")

# Workers that a barrier wakes together queue behind each other's mathematics and would take their start time late. A
# sleep before the mathematics lets all of them take it first (8 workers on two cores: steps 24 % too long without it,
# 2 % with it).
GUARD_WALL_S = 0.002
GUARD_SHARE = 0.25  # of a short step
MOST_OWED = 0.25  # of a step
MEMORY = 0.8  # weight of the past in the running mean of the mathematics' time
# A backward pass multiplies by weights and by activations where a forward pass does by weights alone: twice the work.
FORWARD_SHARE = 1 / 3
ONE_BUCKET = (1.0,)
# A deadline is missed when it is passed by more than all of these: what no timer of a busy host can promise, a share of
# the phase, and a share of the step, below which nobody could see it in a result.
LATE_WALL_S, LATE_SHARE, LATE_STEP_SHARE = 0.001, 0.05, 0.01


def is_missed(clock: Clock, late_s: float, phase_s: float, step_s: float) -> bool:
    """Whether a phase that ended `late_s` after the device missed its deadline; virtual seconds."""
    return late_s > max(LATE_WALL_S / clock.wall(1.0), LATE_SHARE * phase_s, LATE_STEP_SHARE * step_s)


class Computed(NamedTuple, Generic[Result]):
    """What some mathematics gave, and when; virtual seconds."""

    result: Result
    late_s: float | None = None  # after the device that was declared; None: none was
    forward_s: float | None = None  # None: not known apart
    backward_s: float | None = None


class Deadlines(NamedTuple):
    """When the phases of a paced step end."""

    forward: float
    buckets: tuple[float, ...]  # when the gradient of each bucket is there, the last layers' first


class Pace(ABC):
    """How fast a worker is."""

    @abstractmethod
    async def compute(self, step: int, samples: int, work: Callable[[], Result]) -> Computed[Result]:
        """Do the mathematics of `samples` samples, for the step of this number."""

    @abstractmethod
    async def learn(self, work: Callable[[], Result]) -> None:
        """Do some mathematics before anything is timed, to know how long it takes."""


@dataclass(frozen=True)
class HostSpeed(Pace):
    """As fast as this host; hindrances stretch what the mathematics took."""

    clock: Clock
    hindrances: Hindrances = field(default_factory=Hindrances)

    async def compute(self, step: int, samples: int, work: Callable[[], Result]) -> Computed[Result]:  # noqa: ARG002
        started = self.clock.now()
        result = await self.clock.run(work)
        await self.clock.sleep_until(self.hindrances.ends(started, self.clock.now() - started))
        return Computed(result)

    async def learn(self, work: Callable[[], Result]) -> None:
        await self.clock.run(work)


def as_declared(step: int) -> float:  # noqa: ARG001 - every step is like any other
    """The factor of a device whose speed does not vary."""
    return 1.0


@dataclass
class Paced(Pace):
    """A device that does `throughput` samples per virtual second, in a step that nothing varies or hinders."""

    clock: Clock
    throughput: float
    slot: float  # of this worker among those of the host, in [0, 1)
    factor: Callable[[int], float] = as_declared  # of the duration of a step
    hindrances: Hindrances = field(default_factory=Hindrances)
    _work_s: float = field(default=0.0)  # what the mathematics takes, running mean
    _late_s: float = field(default=0.0)  # how long after the device the phase before ended

    async def compute(self, step: int, samples: int, work: Callable[[], Result]) -> Computed[Result]:
        # What followed the phase before began late by that much, and so did this one: the device would be ahead. Of an
        # exchange with others that waited for somebody later still, this is the part that is known here.
        started = self.clock.now() - min(self._late_s, MOST_OWED * samples / self.throughput)
        forward, buckets = self.deadlines(started, self.factor(step) * samples / self.throughput)
        await self.clock.sleep_until(started + self._offset(buckets[-1] - started))
        result = await self._timed(work)
        await self.clock.sleep_until(buckets[-1])
        now = self.clock.now()
        self._late_s = max(0.0, now - buckets[-1])
        return Computed(result, self._late_s, forward - started, now - forward)

    async def learn(self, work: Callable[[], Result]) -> None:
        await self._timed(work)

    def deadlines(self, started: float, duration: float, shares: tuple[float, ...] = ONE_BUCKET) -> Deadlines:
        """When the device would be done with each part of the step.

        Args:
            started: when the step begins.
            duration: of its mathematics without hindrance.
            shares: of the backward pass' operations per bucket, in the order in which buckets become ready; sum to 1.
        """
        backward = duration * (1 - FORWARD_SHARE)
        done = [*(duration - backward + backward * share for share in accumulate(shares[:-1])), duration]
        ends = self.hindrances.ends
        return Deadlines(ends(started, duration - backward), tuple(ends(started, work_s) for work_s in done))

    def _offset(self, duration: float) -> float:
        """When in a phase of `duration` the mathematics starts: after the guard, in this worker's slot."""
        guard = min(GUARD_WALL_S / self.clock.wall(1.0), GUARD_SHARE * duration)
        return guard + self.slot * max(0.0, duration - guard - 2 * self._work_s)

    async def _timed(self, work: Callable[[], Result]) -> Result:
        started = self.clock.now()
        result = await self.clock.run(work)
        self._work_s = MEMORY * self._work_s + (1 - MEMORY) * (self.clock.now() - started)
        return result
