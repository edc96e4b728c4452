"""What does a node send to itself? When a worker serves as well: these messages stay inside and are not counted."""

from collections.abc import Iterable

from services.runtime.transport import Awaited, Message, Sending, Tag, Then, Traffic, Transport
from services.transport.mailbox import Mailbox


class LoopbackTransport(Transport):
    """Another transport, as one part of a node sees it that is its own neighbour.

    Its parts share a mailbox; each counts what itself has sent to others, the inner transport counts everything.
    """

    def __init__(self, inner: Transport, node: str, mailbox: Mailbox) -> None:
        self.traffic = Traffic()
        self.piece_bytes = inner.piece_bytes
        self.finest_bytes = inner.finest_bytes
        self._inner = inner
        self._node = node
        self._mailbox = mailbox

    async def connect(self, names: Iterable[str]) -> None:
        await self._inner.connect([name for name in names if name != self._node])

    async def send(self, to: str, message: Message) -> None:
        if to == self._node:
            return self._keep(message)
        self.traffic.count(to, message.size, framing_bytes=0)
        return await self._inner.send(to, message)

    async def recv(self, source: str, *tags: Tag, into: memoryview | None = None) -> Message:
        if source != self._node:
            return await self._inner.recv(source, *tags, into=into)
        return await self._mailbox.take(source, *tags)

    def send_soon(self, to: str, message: Message) -> Sending | None:
        if to == self._node:
            self._keep(message)
            return None
        self.traffic.count(to, message.size, framing_bytes=0)
        return self._inner.send_soon(to, message)

    def recv_then(self, source: str, tag: Tag, then: Then, into: memoryview | None = None) -> Awaited | None:
        if source != self._node:
            return self._inner.recv_then(source, tag, then, into)
        return self._mailbox.expect(source, (tag,), then)

    def _keep(self, message: Message) -> None:
        self._mailbox.deliver(self._node, message._replace(data=bytes(message.data)))  # the sender may change it
