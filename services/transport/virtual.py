"""Network within one process, in virtual time.

The `simulated` engine and tests use this network.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from services.cluster.links.fluid_link import (
    MAX_FLUID_MESSAGE_BYTES,
    MIN_FLUID_MESSAGE_BYTES,
    FirstLastByteTimes,
    RateLimiter,
    to_goodput_bytes_per_s,
)
from services.cluster.links.link_conditions import ActiveLinkEvents
from services.cluster.links.message_corruption import MessageCorruptor
from services.cluster.network import Network
from services.runtime.clock import VirtualClock
from services.runtime.transport import Message, MessageTag, PendingMessage, ReceiveCallback, SentTraffic, Transport
from services.schema.errors import PeerUnreachable
from services.transport.mailbox import Mailbox
from services.transport.shaping import FluidModelLinkShaping, NodeLinks
from services.transport.stream_authentication import WRONG_TAG_REASON
from services.transport.virtual_connections import VirtualConnections

if TYPE_CHECKING:
    from services.runtime.refused_connections import RefusedConnectionLog
    from services.transport.streams.connection_log import ConnectionLog

EMPTY_NETWORK = Network()
EVENT_REASON = "an event of the scenario has ended the connection"
CLOSED_BY_RECEIVER_REASON = "the receiver has closed the connection"


class MessageFaults(ABC):
    """Base class of disturbances that the virtual network adds to single messages and to calls to the coordinator."""

    keeps_order: bool  # whether messages between two nodes arrive in the order in which they were sent

    @abstractmethod
    def draw_extra_delays(self, source: str, target: str, message: Message) -> Sequence[float]:
        """Return the virtual seconds by which each copy of a message arrives later than its links allow.

        More than one item duplicates the message.
        """

    @abstractmethod
    def draw_call_delay(self, node_name: str) -> float:
        """Return the virtual seconds by which a node's call to the coordinator, or its reply, is delayed."""


class VirtualFabric:
    """Virtual network of one training run in one process.

    It has the links and mailboxes of all nodes, and the links that nodes share.
    """

    def __init__(
        self,
        uplinks: Mapping[str, RateLimiter],
        downlinks: Mapping[str, RateLimiter],
        timeout_s: float,
        network: Network = EMPTY_NETWORK,
        seed: int = 0,
        max_piece_bytes: int = MIN_FLUID_MESSAGE_BYTES,
        payload_scale: float = 1.0,
        message_faults: MessageFaults | None = None,
    ) -> None:
        shared_links = [RateLimiter(to_goodput_bytes_per_s(pipe.rate_bps)) for pipe in network.shared_links]
        self.conditions = {name: ActiveLinkEvents() for name in uplinks}
        self.shapings = {
            name: FluidModelLinkShaping(
                name,
                NodeLinks(uplinks[name], downlinks[name], shared_links),
                network,
                seed,
                VirtualClock(),
                self.conditions[name],
                max_piece_bytes,
                timeout_s,
            )
            for name in uplinks
        }
        self.max_piece_bytes = max_piece_bytes
        self.payload_scale = payload_scale
        self._timeout_s = timeout_s
        self.mailboxes = {name: Mailbox(timeout_s) for name in uplinks}
        self._frozen_nodes: dict[str, asyncio.Event] = {}  # node -> set when the node continues
        self._lost_nodes: set[str] = set()
        self._message_faults = message_faults
        self._connections = VirtualConnections(network, self._withdraw_delayed, self._resend)
        self.refuses_corrupted_messages = False  # as receivers do that verify authentication tags
        self.reopens_streams = False  # as the TCP data plane does; otherwise a stream ends with its connection
        self.corruptors = {name: MessageCorruptor() for name in uplinks}
        self.rejections: dict[str, RefusedConnectionLog] = {}  # by node; a node that logs none is missing
        self.connection_logs: dict[str, ConnectionLog] = {}  # by node; a node that logs none is missing
        self._broken_streams: set[tuple[str, str]] = set()  # (source, target): the target has refused a message

    def make_transport(self, node_name: str) -> "VirtualTransport":
        """Return a transport that sends and receives as the node `node_name`."""
        return VirtualTransport(self, node_name)

    def freeze_node(self, node_name: str) -> None:
        """Let a node neither send nor receive until `thaw_node`; messages to it wait."""
        self._frozen_nodes.setdefault(node_name, asyncio.Event())
        self.mailboxes[node_name].freeze()

    def thaw_node(self, node_name: str) -> None:
        """Let a frozen node continue."""
        if (continued := self._frozen_nodes.pop(node_name, None)) is not None:
            continued.set()
            self.mailboxes[node_name].thaw()

    async def wait_until_running(self, node_name: str) -> None:
        """Wait until a node is not frozen; return at once, without a switch of tasks, if it is not."""
        while (continued := self._frozen_nodes.get(node_name)) is not None:
            await continued.wait()

    def lose_node(self, node_name: str) -> None:
        """Break the connections of a node, as the end of its process would: its peers get an error."""
        self.thaw_node(node_name)
        self._lost_nodes.add(node_name)
        self._connections.forget_node(node_name)
        for name, mailbox in self.mailboxes.items():
            if name != node_name:
                mailbox.mark_source_failed(node_name, PeerUnreachable(f"{node_name} broke off its stream"))

    def recover_node(self, node_name: str) -> None:
        """Let a lost node send and receive again, without the messages from before its loss."""
        self._lost_nodes.discard(node_name)
        self.forget_broken_streams(node_name)
        self.mailboxes[node_name] = Mailbox(self._timeout_s)
        for mailbox in self.mailboxes.values():
            mailbox.forget_source(node_name)

    def forget_broken_streams(self, node_name: str) -> None:
        """Let the streams from and to a node begin anew after a message in them was refused."""
        self._broken_streams = {stream for stream in self._broken_streams if node_name not in stream}

    def raise_if_unreachable(self, source: str, target: str) -> None:
        """Raise an error if a node can't send messages to another one.

        Raises:
            PeerUnreachable: the target is lost, or has refused a message of the stream.
        """
        if target in self._lost_nodes:
            raise PeerUnreachable(f"{target} refused the connection")
        if (source, target) in self._broken_streams:
            raise PeerUnreachable(f"the stream to {target} broke off: {target} has refused a message")

    async def pass_uplink(self, source: str, target: str, message: Message, *, is_refused: bool) -> None:
        """Let a message pass the sender's link, and start to deliver it. Earlier messages are delivered first.

        The target refuses the message, at the time at which it arrives, if `is_refused`.
        """
        shaping = self.shapings[source]
        async with shaping.delay_outgoing(target, self._size_on_wire(message)) as passage:
            message = message._replace(link_start_s=passage.begin_s, link_end_s=passage.end_s)
            self._connections.start_delivery(source, target, message, self._refuse if is_refused else self._deliver)

    async def wait_until_connected(self, source: str, target: str) -> None:
        """Wait until a node can send to another one, if an event has dropped their connection."""
        await self._connections.wait_until_connected(source, target)

    def drop_connections(self, source: str, targets: Iterable[str]) -> None:
        """Drop the connections over which a node sends to others: messages on their way are lost, and sent again."""
        for target in targets:
            if target not in self._lost_nodes:
                self._connections.drop(source, target, EVENT_REASON, self.connection_logs.get(source))

    def _size_on_wire(self, message: Message) -> int:
        return round(message.size_bytes * self.payload_scale)

    def _withdraw_delayed(self, source: str, target: str) -> list[Message]:
        return self.mailboxes[target].withdraw_delayed(source)

    async def _resend(self, source: str, target: str, message: Message) -> None:
        await self.wait_until_running(source)
        shaping = self.shapings[source]
        async with shaping.delay_outgoing(target, self._size_on_wire(message)) as passage:
            message = message._replace(link_start_s=passage.begin_s, link_end_s=passage.end_s)
            await self._deliver(source, target, message)

    async def _pass_downlink(self, source: str, target: str, message: Message) -> float:
        """Let a message pass the receiver's link, and return the virtual time at which it arrives."""
        passage = FirstLastByteTimes(message.link_start_s, message.link_end_s)
        return await self.shapings[target].delay_incoming(source, passage, self._size_on_wire(message))

    async def _refuse(self, source: str, target: str, message: Message) -> None:
        """Let a node refuse a message with a wrong authentication tag, which ends the connection."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(await self._pass_downlink(source, target, message) - loop.time())
        if target in self.rejections:
            self.rejections[target].record(WRONG_TAG_REASON, source)
        if self.reopens_streams:
            self._connections.drop(source, target, CLOSED_BY_RECEIVER_REASON, self.connection_logs.get(source))
            return
        self._broken_streams.add((source, target))
        self.mailboxes[target].mark_source_failed(source, PeerUnreachable(f"{source} broke off its stream"))

    async def _deliver(self, source: str, target: str, message: Message) -> None:
        delivery_s = await self._pass_downlink(source, target, message)
        if (source, target) in self._broken_streams:
            return
        if self._message_faults is None:
            self.mailboxes[target].deliver_at(delivery_s, source, message)
        else:
            self._deliver_with_faults(self._message_faults, delivery_s, source, target, message)

    def _deliver_with_faults(
        self, message_faults: MessageFaults, delivery_s: float, source: str, target: str, message: Message
    ) -> None:
        mailbox, loop = self.mailboxes[target], asyncio.get_running_loop()
        for extra_s in message_faults.draw_extra_delays(source, target, message):
            if message_faults.keeps_order:
                mailbox.deliver_at(delivery_s + extra_s, source, message)
            else:
                loop.call_at(delivery_s + extra_s, mailbox.deliver, source, message)


class VirtualTransport(Transport):
    """Transport of one node in a virtual network within one process.

    A model of the links determines arrival times.
    """

    def __init__(self, fabric: VirtualFabric, node_name: str) -> None:
        self.traffic = SentTraffic()
        self.payload_scale = fabric.payload_scale
        self.max_piece_bytes = fabric.max_piece_bytes
        self.min_piece_bytes = MAX_FLUID_MESSAGE_BYTES
        self._fabric = fabric
        self._node_name = node_name

    def drop_connections(self, names: Iterable[str]) -> None:
        """Drop the connections over which this node sends to other nodes."""
        self._fabric.drop_connections(self._node_name, names)

    async def connect(self, node_names: Iterable[str]) -> None:
        """Return at once, because all nodes of the virtual network are in this process."""

    def forget_lost_peers(self, names: Iterable[str], oldest_step: int, returned: Iterable[str] = ()) -> None:  # noqa: ARG002
        lost_names = tuple(names)
        for name in lost_names:
            self._fabric.forget_broken_streams(name)
        self._fabric.mailboxes[self._node_name].forget_sources(lost_names, oldest_step)

    async def send(self, target: str, message: Message) -> None:
        await self._fabric.wait_until_running(self._node_name)
        self._fabric.raise_if_unreachable(self._node_name, target)
        self.traffic.add_message(target, self.size_on_wire(message), framing_bytes=0)
        data = bytes(message.data)  # a copy: the sender may change its buffer afterwards
        data_on_wire = self._fabric.corruptors[self._node_name].flip_bits(target, message.tag.kind_name, data)
        is_refused = data_on_wire is not data and self._fabric.refuses_corrupted_messages
        message = message._replace(data=data if is_refused else data_on_wire)  # a refused message may be sent again
        await self._fabric.wait_until_connected(self._node_name, target)
        await self._fabric.pass_uplink(self._node_name, target, message, is_refused=is_refused)

    async def receive(self, source: str, *tags: MessageTag, buffer: memoryview | None = None) -> Message:  # noqa: ARG002
        return await self._fabric.mailboxes[self._node_name].receive(source, *tags)

    def start_receive(
        self,
        source: str,
        tag: MessageTag,
        callback: ReceiveCallback,
        buffer: memoryview | None = None,  # noqa: ARG002
    ) -> PendingMessage | None:
        return self._fabric.mailboxes[self._node_name].start_receive(source, (tag,), callback)
