"""Transport of a worker that is paused from time to time.

The transport sends and receives nothing until a pause is over.
"""

from collections.abc import Iterable

from services.runtime.clock import Clock
from services.runtime.slowdowns import WorkerSlowdowns
from services.runtime.transport import Message, MessageTag, Transport


class PausableTransport(Transport):
    """Transport that delays sending and receiving while the worker is paused."""

    def __init__(self, inner: Transport, clock: Clock, slowdowns: WorkerSlowdowns) -> None:
        self.traffic = inner.traffic
        self.payload_scale = inner.payload_scale
        self.max_piece_bytes = inner.max_piece_bytes
        self.min_piece_bytes = inner.min_piece_bytes
        self._inner = inner
        self._clock = clock
        self._slowdowns = slowdowns

    async def connect(self, node_names: Iterable[str]) -> None:
        await self._inner.connect(node_names)

    def forget_lost_peers(self, names: Iterable[str], oldest_step: int, returned: Iterable[str] = ()) -> None:
        self._inner.forget_lost_peers(names, oldest_step, returned)

    async def send(self, target: str, message: Message) -> None:
        await self._wait_until_resumed()
        await self._inner.send(target, message)

    async def receive(self, source: str, *tags: MessageTag, buffer: memoryview | None = None) -> Message:
        message = await self._inner.receive(source, *tags, buffer=buffer)
        await self._wait_until_resumed()
        return message

    async def _wait_until_resumed(self) -> None:
        await self._clock.sleep_until(self._slowdowns.end_of_pause_s(self._clock.now()))
