"""What does a paused worker send and receive? Nothing, until its pause is over."""

from collections.abc import Iterable

from services.runtime.clock import Clock
from services.runtime.slowdowns import Hindrances
from services.runtime.transport import Message, Tag, Transport


class PausingTransport(Transport):
    """Another transport, as a node that is stopped from time to time sees it."""

    def __init__(self, inner: Transport, clock: Clock, hindrances: Hindrances) -> None:
        self.traffic = inner.traffic
        self.piece_bytes = inner.piece_bytes
        self.finest_bytes = inner.finest_bytes
        self._inner = inner
        self._clock = clock
        self._hindrances = hindrances

    async def connect(self, names: Iterable[str]) -> None:
        await self._inner.connect(names)

    async def send(self, to: str, message: Message) -> None:
        await self._awake()
        await self._inner.send(to, message)

    async def recv(self, source: str, *tags: Tag, into: memoryview | None = None) -> Message:
        message = await self._inner.recv(source, *tags, into=into)
        await self._awake()
        return message

    async def _awake(self) -> None:
        await self._clock.sleep_until(self._hindrances.awake(self._clock.now()))
