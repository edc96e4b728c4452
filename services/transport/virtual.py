"""The in-process fabric: the network of the `simulated` engine and of the tests, in virtual time."""

import asyncio
from collections.abc import Iterable, Mapping

from services.cluster.fluid_link import FINE_QUANTUM_BYTES, QUANTUM_BYTES, Passage, Port, goodput
from services.cluster.link_conditions import Conditions
from services.cluster.network import Network
from services.runtime.clock import VirtualClock
from services.runtime.transport import Awaited, Message, Tag, Then, Traffic, Transport
from services.transport.mailbox import Mailbox
from services.transport.shaping import FluidLink, Ports

NO_NETWORK = Network()


class Fabric:
    """The links and mailboxes of all nodes of one run, and the pipes between them."""

    def __init__(
        self,
        uplinks: Mapping[str, Port],
        downlinks: Mapping[str, Port],
        timeout_s: float,
        network: Network = NO_NETWORK,
        seed: int = 0,
        piece_bytes: int = FINE_QUANTUM_BYTES,
    ) -> None:
        pipes = [Port(goodput(pipe.rate_bps)) for pipe in network.pipes]
        self.conditions = {name: Conditions() for name in uplinks}
        self.links = {
            name: FluidLink(
                name,
                Ports(uplinks[name], downlinks[name], pipes),
                network,
                seed,
                VirtualClock(),
                self.conditions[name],
                piece_bytes,
            )
            for name in uplinks
        }
        self.piece_bytes = piece_bytes
        self.mailboxes = {name: Mailbox(timeout_s) for name in uplinks}
        self._entering: set[asyncio.Task[None]] = set()

    def transport(self, node: str) -> "VirtualTransport":
        """The seam as `node` sees it."""
        return VirtualTransport(self, node)

    def carry(self, source: str, to: str, message: Message) -> None:
        """Let a message that is on its way come in at its receiver, behind those of this sender before it."""
        task = asyncio.get_running_loop().create_task(self._enter(source, to, message))
        self._entering.add(task)
        task.add_done_callback(self._entering.discard)

    async def _enter(self, source: str, to: str, message: Message) -> None:
        due = await self.links[to].entering(source, Passage(message.sent_at, message.passed_at), message.size)
        asyncio.get_running_loop().call_at(due, self.mailboxes[to].deliver, source, message)


class VirtualTransport(Transport):
    """Delivers every message when the fluid model says that it has arrived."""

    def __init__(self, fabric: Fabric, node: str) -> None:
        self.traffic = Traffic()
        self.piece_bytes = fabric.piece_bytes
        self.finest_bytes = QUANTUM_BYTES
        self._fabric = fabric
        self._node = node

    async def connect(self, names: Iterable[str]) -> None:
        """Everybody is in this process."""

    async def send(self, to: str, message: Message) -> None:
        self.traffic.count(to, message.size, framing_bytes=0)
        message = message._replace(data=bytes(message.data))  # the sender may go on to change it
        async with self._fabric.links[self._node].leaving(to, message.size) as passage:
            self._fabric.carry(self._node, to, message._replace(sent_at=passage.begins, passed_at=passage.ends))

    async def recv(self, source: str, *tags: Tag, into: memoryview | None = None) -> Message:  # noqa: ARG002
        return await self._fabric.mailboxes[self._node].take(source, *tags)

    def recv_then(self, source: str, tag: Tag, then: Then, into: memoryview | None = None) -> Awaited | None:  # noqa: ARG002
        return self._fabric.mailboxes[self._node].expect(source, (tag,), then)
