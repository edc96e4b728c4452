"""A deadline timer gives up an operation at its own deadline and not at that of an earlier operation."""

import asyncio
from collections.abc import Callable
from typing import Any

from services.transport.deadlines import DeadlineTimer

InVirtualTime = Callable[[Any], Any]


def test_only_an_operation_that_takes_too_long_is_given_up(in_virtual_time: InVirtualTime) -> None:
    """One timer serves many operations: the first ones end in time, the last one has its full time limit."""

    async def main() -> list[float]:
        loop, expired = asyncio.get_running_loop(), []
        timer = DeadlineTimer(10.0, lambda: expired.append(loop.time()))
        for _ in range(3):
            timer.start()
            await asyncio.sleep(6)
            timer.stop()
        timer.start()  # at 18
        await asyncio.sleep(30)
        return expired

    assert in_virtual_time(main()) == [28.0]


def test_a_stopped_timer_never_expires(in_virtual_time: InVirtualTime) -> None:
    """A timer that is still set must not end an idle stream."""

    async def main() -> list[str]:
        expired: list[str] = []
        timer = DeadlineTimer(1.0, lambda: expired.append("lost"))
        timer.start()
        timer.stop()
        await asyncio.sleep(100)
        return expired

    assert in_virtual_time(main()) == []
