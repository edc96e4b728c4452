"""Order in which waiting messages are written to a stream: small before large.

Messages are written one at a time.
"""

import asyncio
from collections import deque

SMALL_MESSAGE_BYTES = 64 << 10  # a link passes such a message quickly: large messages behind it are hardly delayed


class SmallMessagesFirstLock:
    """Lock for writing to a stream that prefers small messages.

    Waiting small messages get the lock before large ones. A large message is split into pieces that wait together. With
    a plain lock a small message would wait for all of them.
    """

    def __init__(self) -> None:
        self._is_locked = False
        self._small_waiters: deque[asyncio.Future[None]] = deque()
        self._large_waiters: deque[asyncio.Future[None]] = deque()

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free, and return whether it was free.

        Call `release` afterwards if the lock was free.
        """
        if self._is_locked:
            return False
        self._is_locked = True
        return True

    async def acquire(self, message_bytes: int) -> None:
        """Wait until a message of the given size may be written.

        Call `release` afterwards.
        """
        if self.try_acquire():
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._small_waiters if message_bytes <= SMALL_MESSAGE_BYTES else self._large_waiters).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the lock was given to this waiter, which won't use it
                self.release()
            raise

    def release(self) -> None:
        """Give the lock to the next waiting message, or free the lock."""
        for waiters in (self._small_waiters, self._large_waiters):
            while waiters:
                if not (turn := waiters.popleft()).done():
                    turn.set_result(None)
                    return
        self._is_locked = False
