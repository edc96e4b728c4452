"""Base class of the data planes between processes.

The base class shapes outgoing and incoming messages and has the mailbox.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, Self

from services.cluster.addresses import Address
from services.cluster.links.fluid_link import FirstLastByteTimes
from services.cluster.links.message_corruption import MessageCorruptor
from services.cluster.links.message_lengths import MessageSizeLimits
from services.runtime.clock import Clock
from services.runtime.identity import NodeIdentity
from services.runtime.refused_connections import RefusedConnectionLog
from services.runtime.transport import (
    Buffer,
    DataProtection,
    Message,
    MessageTag,
    PendingMessage,
    ReceiveCallback,
    SentTraffic,
    Transport,
)
from services.schema.errors import NetworkError
from services.transport.codec import PADDING_HEADER_BYTES, PREFIX_BYTES
from services.transport.grpc.connection_watch import ConnectionWatch
from services.transport.mailbox import Mailbox
from services.transport.shaping import TransportShaping
from services.transport.stream_authentication import TAG_BYTES
from services.transport.streams.connection_log import ConnectionLog

# Wall seconds within which an unknown process that has connected must prove its identity.
HANDSHAKE_TIMEOUT_S = 10.0
# Limit of a payload where no plan states one. Vectors are cut into much shorter pieces.
DEFAULT_PAYLOAD_LIMIT_BYTES = 256 << 20


class SocketTransport(Transport):
    """Base class of the gRPC and TCP transports: one stream to every neighbour.

    A stream is opened with the node's signed identity. `async with` starts the transport. It stops the transport at the
    end, or aborts it after an error.
    """

    message_lengths: ClassVar[MessageSizeLimits]
    header_bytes: ClassVar[int] = PREFIX_BYTES  # that the encoding adds to a payload, without its padding

    def __init__(  # noqa: D417 - the types of identity and clock say what they are
        self,
        addresses: Mapping[str, Address],
        identity: NodeIdentity,
        clock: Clock,
        timeout_s: float,
        stream_lifetime_s: float,
        shaping: TransportShaping | None = None,
        protection: DataProtection = "signed",
        payload_scale: float = 1.0,
    ) -> None:
        """Create a transport that has no open streams yet.

        Args:
            addresses: data addresses of all nodes, by name.
            timeout_s: virtual seconds within which a message must be taken or received.
            stream_lifetime_s: virtual seconds for which a stream may stay open.
            shaping: emulation of the network that the kernel does not do; None when the kernel does all of it.
            protection: protection of messages, in addition to the signed identity with which a stream is opened.
            payload_scale: bytes on the wire for each byte of a payload. Messages are padded to this size, unless
                `shaping` emulates the rates of links: such links only need to know the size.
        """
        self.payload_scale = payload_scale
        self._sends_padding = payload_scale > 1 and not (shaping and shaping.emulates_rates)
        self.traffic = SentTraffic()
        self.corruptor = MessageCorruptor()
        self.max_piece_bytes = (shaping and shaping.max_piece_bytes) or self.message_lengths.max_message_bytes
        self.min_piece_bytes = self.message_lengths.min_piece_bytes
        self._addresses = addresses
        self._identity = identity
        self._clock = clock
        self._timeout_s = timeout_s
        self._timeout_wall_s = clock.to_wall_s(timeout_s)
        self._stream_lifetime_wall_s = clock.to_wall_s(stream_lifetime_s)
        self._shaping = shaping
        self._tls = identity if protection == "tls" else None
        self._authenticates_messages = protection == "authenticated"
        self._mailbox = Mailbox(timeout_s, clock.to_wall_s(1.0))
        self._payload_limit_bytes = DEFAULT_PAYLOAD_LIMIT_BYTES
        self._rejections: RefusedConnectionLog | None = None
        self._connections: ConnectionWatch | None = None
        self._connection_log: ConnectionLog | None = None
        self._tolerates_lost_peers = False
        self._lost_peers: set[str] = set()  # peers that were lost, and have not returned

    def limit_incoming_streams(
        self, payload_limit_bytes: int, rejections: RefusedConnectionLog, connections: ConnectionWatch | None = None
    ) -> None:
        """Accept no longer payload in one message, and log refused streams. Call this before `start`.

        Args:
            payload_limit_bytes: longest accepted payload.
            rejections: log of refused streams.
            connections: watch that records the connections that gRPC refuses; None without one.
        """
        self._payload_limit_bytes, self._rejections, self._connections = payload_limit_bytes, rejections, connections

    def log_connections(self, log: ConnectionLog) -> None:
        """Log connections that end early, and those that replace them. Call this before `start`."""
        self._connection_log = log

    def tolerate_lost_peers(self) -> None:
        """Let `stop` ignore errors of outgoing streams: a peer that is lost at the end has nothing more to receive."""
        self._tolerates_lost_peers = True

    def set_time_limit(self, timeout_s: float, remedy: str) -> None:
        """Change the virtual seconds within which a message must be taken or received; errors state the remedy."""
        self._timeout_s, self._timeout_wall_s = timeout_s, self._clock.to_wall_s(timeout_s)
        self._mailbox.set_time_limit(timeout_s, remedy)

    @abstractmethod
    async def start(self) -> None:
        """Start to listen for streams of other nodes on the data network.

        Raises:
            PeerUnreachable: the address is not available.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Stop the transport when all messages have arrived.

        Then the peers have received all messages from this node, and all messages to this node have arrived, except
        those of lost peers. A stream on which a message was broken off at this node is skipped: its sender has
        cancelled the message, or has already received the error.

        Raises:
            NetworkError: a neighbour has ended its side early, or does not end it, and lost peers are not tolerated.
        """

    @abstractmethod
    async def abort(self) -> None:
        """Close all incoming streams without waiting for their end.

        Has no effect after a complete `stop`.
        """

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                await self.stop()
        finally:
            await self.abort()

    def forget_lost_peers(self, names: Iterable[str], oldest_step: int, returned: Iterable[str] = ()) -> None:
        names = tuple(names)
        self._lost_peers = (self._lost_peers | set(names)) - set(returned)
        self._mailbox.forget_sources(names, oldest_step)
        for name in names:
            self._drop_stream(name)

    @abstractmethod
    def _drop_stream(self, target: str) -> None:
        """Close the stream to a node that was lost, if there is one, without waiting for its messages."""

    @abstractmethod
    async def _write_to_stream(self, target: str, message: Message) -> None:
        """Write a message to the stream to `target`.

        The message is written after the emulated link has let it pass.
        """

    @contextmanager
    def _ignore_lost_peer(self) -> Iterator[None]:
        """Suppress the network errors of the `with` block if lost peers are tolerated."""
        try:
            yield
        except NetworkError:
            if not self._tolerates_lost_peers:
                raise

    def _record_rejection(self, reason: str, claimed_sender: str) -> None:
        """Record that this node has refused a stream of another process, or a message in it."""
        if self._rejections is not None:
            self._rejections.record(reason, claimed_sender)

    def _count_padding_bytes(self, payload_bytes: int) -> int:
        """Return the number of zeros that are sent after a payload, without their header."""
        return round(payload_bytes * self.payload_scale) - payload_bytes if self._sends_padding else 0

    def _add_to_traffic(self, target: str, message: Message) -> None:
        """Add a message to the counters of sent traffic."""
        padding_header_bytes = PADDING_HEADER_BYTES if self._count_padding_bytes(message.size_bytes) else 0
        framing_bytes = self.header_bytes + padding_header_bytes + self._count_tag_bytes(message)
        self.traffic.add_message(target, self.size_on_wire(message), framing_bytes)

    def _count_tag_bytes(self, message: Message) -> int:  # noqa: ARG002 - of other data planes
        """Return the bytes of the authentication tags of a message."""
        return TAG_BYTES if self._authenticates_messages else 0

    def _payload_on_wire(self, target: str, message: Message) -> Buffer:
        """Return the payload of a message as it arrives: an event may flip bits in it, after its tag was computed."""
        return self.corruptor.flip_bits(target, message.tag.kind_name, message.data)

    async def send(self, target: str, message: Message) -> None:
        self._add_to_traffic(target, message)
        if self._shaping is None:
            return await self._write_to_stream(target, message)
        async with self._shaping.delay_outgoing(target, self.size_on_wire(message)) as passage:
            message = message._replace(link_start_s=passage.begin_s, link_end_s=passage.end_s)
            return await self._write_to_stream(target, message)

    async def receive(self, source: str, *tags: MessageTag, buffer: memoryview | None = None) -> Message:
        return await self._mailbox.receive(source, *tags, buffer=buffer)

    def start_receive(
        self, source: str, tag: MessageTag, callback: ReceiveCallback, buffer: memoryview | None = None
    ) -> PendingMessage | None:
        return self._mailbox.start_receive(source, (tag,), callback, buffer)

    async def _deliver(self, source: str, message: Message) -> None:
        """Put a received message into the mailbox after the emulated delay.

        The message is delayed as long as the emulated links would delay it.
        """
        if self._shaping is None:
            self._mailbox.deliver(source, message)
            return
        passage = FirstLastByteTimes(message.link_start_s, message.link_end_s)
        delivery_s = await self._shaping.delay_incoming(source, passage, self.size_on_wire(message))
        wait_s = self._clock.to_wall_s(max(0.0, delivery_s - self._clock.now()))
        self._mailbox.deliver_at(asyncio.get_running_loop().time() + wait_s, source, message)
