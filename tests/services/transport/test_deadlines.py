"""What takes too long is given up, at its own deadline and not at that of an earlier one."""

import asyncio
from collections.abc import Callable
from typing import Any

from services.transport.deadlines import DeadlineTimer

Run = Callable[[Any], Any]


def test_only_what_lasts_too_long_is_given_up(in_virtual_time: Run) -> None:
    """One timer serves many waits: the first ones end in time, the last has all of its own time."""

    async def main() -> list[float]:
        loop, lost = asyncio.get_running_loop(), []
        patience = DeadlineTimer(10.0, lambda: lost.append(loop.time()))
        for _ in range(3):
            patience.start()
            await asyncio.sleep(6)
            patience.stop()
        patience.start()  # at 18
        await asyncio.sleep(30)
        return lost

    assert in_virtual_time(main()) == [28.0]


def test_what_has_ended_is_never_given_up(in_virtual_time: Run) -> None:
    """A timer that is still set must not end a stream that does nothing."""

    async def main() -> list[str]:
        lost: list[str] = []
        patience = DeadlineTimer(1.0, lambda: lost.append("lost"))
        patience.start()
        patience.stop()
        await asyncio.sleep(100)
        return lost

    assert in_virtual_time(main()) == []
