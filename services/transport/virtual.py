"""The in-process fabric: the network of the `simulated` engine and of the tests, in virtual time."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace

from services.links import QUANTUM_BYTES, Port
from services.transport.base import Message, Tag, Traffic, Transport
from services.transport.mailbox import Mailbox


class Fabric:
    """The links and mailboxes of all nodes of one run."""

    def __init__(self, uplinks: Mapping[str, Port], downlinks: Mapping[str, Port], timeout_s: float) -> None:
        self.uplinks = uplinks
        self.downlinks = downlinks
        self.mailboxes = {name: Mailbox(timeout_s) for name in uplinks}

    def transport(self, node: str) -> "VirtualTransport":
        """The seam as `node` sees it."""
        return VirtualTransport(self, node)


class VirtualTransport(Transport):
    """Delivers every message when the fluid model says that it has arrived."""

    def __init__(self, fabric: Fabric, node: str) -> None:
        self.traffic = Traffic()
        self.piece_bytes = QUANTUM_BYTES
        self._fabric = fabric
        self._node = node

    async def connect(self, names: Iterable[str]) -> None:
        """Everybody is in this process."""

    async def send(self, to: str, message: Message) -> None:
        loop = asyncio.get_running_loop()
        sent_at, passed_at = self._fabric.uplinks[self._node].take(loop.time(), message.size)
        self.traffic.count(to, message.size, framing_bytes=0)
        await asyncio.sleep(max(0.0, sent_at - loop.time()))
        due = self._fabric.downlinks[to].give(sent_at, passed_at, message.size)
        sent = replace(message, data=bytes(message.data), sent_at=sent_at, passed_at=passed_at)
        loop.call_at(due, self._fabric.mailboxes[to].deliver, self._node, sent)

    async def recv(self, source: str, *tags: Tag) -> Message:
        return await self._fabric.mailboxes[self._node].take(source, *tags)
