"""The seam between an algorithm and time: virtual seconds, whether they pass or are skipped.

Everything that a node does is told in virtual seconds: wall seconds divided by the dilation of the run, or the time of
an event loop that jumps from one timer to the next. Only this file knows which.
"""

import asyncio
import selectors
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from services.runtime.scheduling import wake_soon

Result = TypeVar("Result")


class Clock(ABC):
    """Virtual seconds on an axis that all nodes of a run share."""

    @abstractmethod
    def now(self) -> float:
        """Virtual seconds; only differences mean something."""

    @abstractmethod
    def epoch_ms(self) -> float:
        """`now()` as the milliseconds of a log line; differences are virtual, the date is the run's."""

    @abstractmethod
    def wall(self, seconds: float) -> float:
        """Seconds that an event loop must wait for `seconds` of virtual time to pass."""

    @abstractmethod
    async def run(self, work: Callable[[], Result]) -> Result:
        """Do mathematics without holding up messages."""

    async def sleep_until(self, deadline: float) -> None:
        """Return at `deadline`, or at once when it has passed."""
        remaining = deadline - self.now()
        if remaining > 0:
            await asyncio.sleep(self.wall(remaining))


class WallClock(Clock):
    """The host's monotonic clock, which containers share, slowed down by the dilation of the run."""

    def __init__(self, dilation: float = 1.0) -> None:
        self._dilation = dilation
        self._epoch_s = time.time() - time.monotonic()

    def now(self) -> float:
        return time.monotonic() / self._dilation

    def epoch_ms(self) -> float:
        return (self._epoch_s + self.now()) * 1e3

    def wall(self, seconds: float) -> float:
        return seconds * self._dilation

    async def run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(None, work)


class VirtualClock(Clock):
    """The time of a `VirtualLoop`: mathematics takes none of it."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def epoch_ms(self) -> float:
        return self.now() * 1e3

    def wall(self, seconds: float) -> float:
        return seconds

    async def run(self, work: Callable[[], Result]) -> Result:
        return work()


class _Jump(selectors.SelectSelector):
    """A selector that never waits: it adds the wait to a virtual time instead."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("every task waits for another one: a deadlock in virtual time")
        self.time += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, deterministic: it runs what is ready and then jumps to the next timer.

    Raises:
        RuntimeError: when nothing is ready and no timer is set, so a lost message is a failure, not a hang.
    """

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.time


def precise_loop() -> asyncio.AbstractEventLoop:
    """An event loop whose timers are good to some ten microseconds; `epoll` would round them up to a millisecond."""
    wake_soon()
    return asyncio.SelectorEventLoop(selectors.SelectSelector())
