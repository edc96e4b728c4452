"""How long may something take? One timer watches many waits: a timer for each would cost more than a message."""

import asyncio
from collections.abc import Callable


class Patience:
    """Calls `lost` when what has begun has not ended in time; one thing at a time, again and again."""

    def __init__(self, wall_s: float, lost: Callable[[], object]) -> None:
        self._wall_s = wall_s
        self._lost = lost
        self._deadline: float | None = None
        self._watching = False

    def begin(self) -> None:
        """From now on."""
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self._wall_s
        if not self._watching:
            self._watch(self._wall_s)

    def end(self) -> None:
        """It came in time."""
        self._deadline = None

    def _watch(self, seconds: float) -> None:
        self._watching = True
        asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """The timer of an earlier wait may ring in a later one, which has more time."""
        self._watching = False
        if self._deadline is None:
            return
        left = self._deadline - asyncio.get_running_loop().time()
        if left > 0:
            self._watch(left)
        else:
            self._lost()
