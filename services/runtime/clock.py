"""Clocks of a node, which measure virtual seconds.

One follows the host's clock, the other simulates time. A node states all times in virtual seconds. On real hosts these
are wall seconds divided by the dilation of the run (`WallClock`). In a simulation they are the time of an event loop
that never waits (`VirtualClock`). Only this module distinguishes the two.
"""

import asyncio
import select
import selectors
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from services.runtime.scheduling import reduce_wakeup_latency

EPOLL_PRECISION_S = 2e-3  # `epoll` waits up to a millisecond longer than requested

Result = TypeVar("Result")


class Clock(ABC):
    """Base class of clocks in virtual seconds; all nodes of a run share one time axis."""

    @abstractmethod
    def now(self) -> float:
        """Return the current time in virtual seconds.

        Only differences between two times of the same clock have a meaning.
        """

    @abstractmethod
    def timestamp_ms(self) -> float:
        """Return the time of this clock in milliseconds, for log lines.

        A difference of two times is time of the emulated cluster (virtual).
        """

    @abstractmethod
    def to_wall_s(self, virtual_s: float) -> float:
        """Return the wall-clock seconds in which `virtual_s` virtual seconds pass."""

    @abstractmethod
    async def run_compute_function(self, function: Callable[[], Result]) -> Result:
        """Run a compute function while the node can still exchange messages.

        Return the result of the function.
        """

    async def sleep_until(self, deadline_s: float) -> None:
        """Sleep until the virtual time `deadline_s`.

        Return at once if this time has passed.
        """
        remaining_s = deadline_s - self.now()
        if remaining_s > 0:
            await asyncio.sleep(self.to_wall_s(remaining_s))


class WallClock(Clock):
    """Clock of virtual seconds that follows the host's monotonic clock.

    The clock is slowed down by the time dilation: the factor between real and virtual seconds.
    """

    def __init__(self, dilation: float = 1.0) -> None:
        self._dilation = dilation
        self._unix_offset_s = time.time() - time.monotonic()

    def now(self) -> float:
        return time.monotonic() / self._dilation

    def timestamp_ms(self) -> float:
        return (self._unix_offset_s + self.now()) * 1e3

    def to_wall_s(self, virtual_s: float) -> float:
        return virtual_s * self._dilation

    async def run_compute_function(self, function: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(None, function)


class VirtualClock(Clock):
    """Clock of a simulated trial.

    Its time is that of a `VirtualTimeLoop`; the call of a compute function takes no virtual time.
    """

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def timestamp_ms(self) -> float:
        return self.now() * 1e3

    def to_wall_s(self, virtual_s: float) -> float:
        return virtual_s

    async def run_compute_function(self, function: Callable[[], Result]) -> Result:
        return function()


class _VirtualTimeSelector(selectors.SelectSelector):
    """I/O selector that never waits, for an event loop in virtual time.

    It advances virtual time by the requested waiting time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.virtual_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("deadlock in virtual time: every task waits for another task and no timer is set")
        self.virtual_s += max(timeout, 0.0)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Deterministic event loop in virtual time.

    It runs all tasks that are ready, then jumps to the next timer.

    Raises:
        RuntimeError: no task is ready and no timer is set. A lost message is therefore an error, not a hang.
    """

    def __init__(self) -> None:
        self._jumping_selector = _VirtualTimeSelector()
        super().__init__(self._jumping_selector)

    def time(self) -> float:
        return self._jumping_selector.virtual_s


class _PreciseEpollSelector(selectors.EpollSelector):
    """I/O selector whose waiting times are accurate to tens of microseconds.

    `epoll` rounds waiting times up to a millisecond, and `select` does not, but costs more CPU time per call. So this
    selector waits with `epoll` until shortly before the end, and then with `select` for the `epoll` object itself.
    """

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        if timeout > EPOLL_PRECISION_S:  # returns early without events; the event loop then waits for the rest
            return super().select(timeout - EPOLL_PRECISION_S)
        select.select([self.fileno()], [], [], timeout)
        return super().select(0)


def make_precise_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop whose timers are accurate to tens of microseconds."""
    reduce_wakeup_latency()
    return asyncio.SelectorEventLoop(_PreciseEpollSelector())
