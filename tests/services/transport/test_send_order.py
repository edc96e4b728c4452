"""One message at a time on a stream, small ones first, and nobody waits for a turn that was given away."""

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from services.transport.send_order import SMALL_MESSAGE_BYTES, SmallMessagesFirstLock

Run = Callable[[Any], Any]

SMALL, LARGE = 1, SMALL_MESSAGE_BYTES + 1


@given(sizes=st.lists(st.sampled_from([SMALL, LARGE]), min_size=1, max_size=8))
def test_small_messages_pass_large_ones_that_wait(sizes: list[int], in_virtual_time: Run) -> None:
    """Pieces of a vector wait together; a small message waits for one of them at most. Otherwise first come."""

    async def main() -> list[int]:
        turns, served = SmallMessagesFirstLock(), []

        async def write(number: int, size: int) -> None:
            await turns.acquire(size)
            served.append(number)
            await asyncio.sleep(1)
            turns.release()

        await turns.acquire(LARGE)  # somebody is writing
        writers = [asyncio.create_task(write(number, size)) for number, size in enumerate(sizes)]
        await asyncio.sleep(1)
        turns.release()
        await asyncio.gather(*writers)
        return served

    assert in_virtual_time(main()) == sorted(range(len(sizes)), key=lambda number: sizes[number])


@given(
    sizes=st.lists(st.sampled_from([SMALL, LARGE]), min_size=2, max_size=6),
    leaving=st.sets(st.integers(0, 5)),
    late=st.booleans(),
)
def test_whoever_gives_up_waiting_holds_nobody_up(
    sizes: list[int], leaving: set[int], late: bool, in_virtual_time: Run
) -> None:
    """Also at the very moment at which the turn was handed over: a stream that nobody may use is a run that hangs."""

    async def main() -> tuple[int, int]:
        turns, most, inside = SmallMessagesFirstLock(), 0, 0

        async def write(size: int) -> None:
            nonlocal most, inside
            await turns.acquire(size)
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1
            turns.release()

        await turns.acquire(LARGE)
        writers = [asyncio.create_task(write(size)) for size in sizes]
        await asyncio.sleep(0)
        if late:
            turns.release()
        for number in leaving & set(range(len(writers))):
            writers[number].cancel()
        if not late:
            turns.release()
        await asyncio.gather(*writers, return_exceptions=True)
        async with asyncio.timeout(1):
            await turns.acquire(SMALL)
        return most, inside

    most, inside = in_virtual_time(main())

    assert (most <= 1, inside) == (True, 0)
