"""Who writes to a stream next? One message at a time; of those that wait, small ones before large ones."""

import asyncio
from collections import deque

SMALL_BYTES = 64 << 10  # what a link passes on quickly: large messages behind it hardly notice


class Turns:
    """A lock whose waiters are served by size, and otherwise in their order.

    A large message is cut into pieces, and pieces wait together: without this, a small one would wait for all of them.
    """

    def __init__(self) -> None:
        self._taken = False
        self._small: deque[asyncio.Future[None]] = deque()
        self._large: deque[asyncio.Future[None]] = deque()

    def take_now(self) -> bool:
        """Whether it could be had without waiting; then `give_back` must follow."""
        if self._taken:
            return False
        self._taken = True
        return True

    async def take(self, size: int) -> None:
        """Return when a message of `size` bytes may be written; `give_back` must follow."""
        if self.take_now():
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._small if size <= SMALL_BYTES else self._large).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it had come, and nobody will use it
                self.give_back()
            raise

    def give_back(self) -> None:
        """Let the next one write."""
        for waiting in (self._small, self._large):
            while waiting:
                if not (turn := waiting.popleft()).done():
                    turn.set_result(None)
                    return
        self._taken = False
