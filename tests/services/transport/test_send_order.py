"""A stream sends one message at a time, small ones first, and a cancelled sender blocks no other."""

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from services.transport.send_order import SMALL_MESSAGE_BYTES, SmallMessagesFirstLock

InVirtualTime = Callable[[Any], Any]

SMALL, LARGE = 1, SMALL_MESSAGE_BYTES + 1


@given(sizes=st.lists(st.sampled_from([SMALL, LARGE]), min_size=1, max_size=8))
def test_small_messages_overtake_waiting_large_messages(sizes: list[int], in_virtual_time: InVirtualTime) -> None:
    """Pieces of a vector wait together; a small message waits for at most one of them."""

    async def main() -> list[int]:
        lock, sent_numbers = SmallMessagesFirstLock(), []

        async def write(number: int, size: int) -> None:
            await lock.acquire(size)
            sent_numbers.append(number)
            await asyncio.sleep(1)
            lock.release()

        await lock.acquire(LARGE)  # another message is being sent
        writers = [asyncio.create_task(write(number, size)) for number, size in enumerate(sizes)]
        await asyncio.sleep(1)
        lock.release()
        await asyncio.gather(*writers)
        return sent_numbers

    assert in_virtual_time(main()) == sorted(range(len(sizes)), key=lambda number: sizes[number])


@given(
    sizes=st.lists(st.sampled_from([SMALL, LARGE]), min_size=2, max_size=6),
    cancelled=st.sets(st.integers(0, 5)),
    cancel_after_release=st.booleans(),
)
def test_a_sender_that_gives_up_waiting_blocks_no_other_sender(
    sizes: list[int], cancelled: set[int], cancel_after_release: bool, in_virtual_time: InVirtualTime
) -> None:
    """Also at the moment at which it gets the lock: a run hangs if a lock is never released."""

    async def main() -> tuple[int, int]:
        lock, max_active, active = SmallMessagesFirstLock(), 0, 0

        async def write(size: int) -> None:
            nonlocal max_active, active
            await lock.acquire(size)
            active += 1
            max_active = max(max_active, active)
            await asyncio.sleep(0)
            active -= 1
            lock.release()

        await lock.acquire(LARGE)
        writers = [asyncio.create_task(write(size)) for size in sizes]
        await asyncio.sleep(0)
        if cancel_after_release:
            lock.release()
        for number in cancelled & set(range(len(writers))):
            writers[number].cancel()
        if not cancel_after_release:
            lock.release()
        await asyncio.gather(*writers, return_exceptions=True)
        async with asyncio.timeout(1):
            await lock.acquire(SMALL)
        return max_active, active

    max_active, active = in_virtual_time(main())

    assert (max_active <= 1, active) == (True, 0)
