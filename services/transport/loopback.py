"""What does a node send to itself? When a worker serves as well: these messages stay inside and are not counted."""

from collections.abc import Iterable
from dataclasses import replace

from services.transport.base import Message, Tag, Transport
from services.transport.mailbox import Mailbox


class LoopbackTransport(Transport):
    """Another transport, for a node that is its own neighbour."""

    def __init__(self, inner: Transport, node: str, timeout_s: float, dilation: float = 1.0) -> None:
        """`timeout_s` is virtual; the running event loop waits `dilation` times as long."""
        self.traffic = inner.traffic
        self.piece_bytes = inner.piece_bytes
        self._inner = inner
        self._node = node
        self._mailbox = Mailbox(timeout_s, dilation)

    async def connect(self, names: Iterable[str]) -> None:
        await self._inner.connect([name for name in names if name != self._node])

    async def send(self, to: str, message: Message) -> None:
        if to != self._node:
            return await self._inner.send(to, message)
        return self._mailbox.deliver(to, replace(message, data=bytes(message.data)))  # the sender may change it

    async def recv(self, source: str, *tags: Tag) -> Message:
        if source != self._node:
            return await self._inner.recv(source, *tags)
        return await self._mailbox.take(source, *tags)
