"""Data plane over bare TCP: one long-lived stream to every neighbour.

A stream is opened with the sender's signed identity.
"""

import asyncio
import ssl
from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from services.cluster.links.message_lengths import TCP_MESSAGE_SIZE_LIMITS, MessageSizeLimits
from services.runtime.transport import Message, MessageKind, MessageTag, SendFuture
from services.schema.errors import PeerUnreachable
from services.transport.codec import PREFIX_BYTES, encode_message_prefix, make_padding_buffers
from services.transport.socket_transport import SocketTransport
from services.transport.stream_authentication import StreamKeyAgreement
from services.transport.streams.listening_probe import wait_until_node_has_ended
from services.transport.streams.received_streams import ReceivedStreams, StreamOpening
from services.transport.tcp import tls
from services.transport.tcp.outgoing_stream import OutgoingStream, SendTimeLimit
from services.transport.tcp.receiver import MAX_UNIDENTIFIED_STREAMS, StreamReceiver
from services.transport.tcp.sender import COUNT_FORMAT, OpenedConnection, open_connection
from services.transport.tcp.tls_handshake import IncomingTlsHandshake


class TcpTransport(SocketTransport):
    """Transport of one node over bare TCP: sends messages to other nodes and receives theirs."""

    message_lengths: ClassVar[MessageSizeLimits] = TCP_MESSAGE_SIZE_LIMITS
    header_bytes: ClassVar[int] = COUNT_FORMAT.size + PREFIX_BYTES

    async def start(self) -> None:
        self._streams: dict[str, OutgoingStream] = {}
        self._receivers: set[StreamReceiver] = set()
        self._tls_handshakes: set[IncomingTlsHandshake] = set()
        self._received_streams = ReceivedStreams(
            self._mailbox,
            lambda source: wait_until_node_has_ended(self._addresses[source]),
            lambda: self._timeout_wall_s,
        )
        address = self._addresses[self._identity.name]
        make_protocol = (
            self._make_receiver
            if self._tls is None
            else partial(self._make_tls_handshake, tls.make_server_tls_context(self._tls))
        )
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(make_protocol, address.host, address.port)
        except OSError as error:
            raise PeerUnreachable(f"can't listen on {address}: {error}") from error

    async def connect(self, node_names: Iterable[str]) -> None:
        """Open the streams to the given nodes before training starts.

        Without this call, handshakes would delay the first step.
        """
        for name in node_names:
            try:
                async with asyncio.timeout(self._stream_lifetime_wall_s):
                    await self._open_stream(name).wait_until_open()
            except TimeoutError:
                raise PeerUnreachable(f"can't open a stream to {name}: not accepted in time") from None

    async def stop(self) -> None:
        end_prefix = encode_message_prefix(Message(MessageTag(0, MessageKind.END_OF_STREAM)))
        for stream in self._streams.values():
            with self._ignore_lost_peer():
                await stream.close(end_prefix)
        # Neighbours may still send. An unknown process that only keeps a connection open must not delay the end.
        unfinished_streams = self._received_streams.unfinished
        if closed := [future for source, future in unfinished_streams.items() if source not in self._lost_peers]:
            await asyncio.wait(closed, timeout=self._stream_lifetime_wall_s)
        for receiver in tuple(self._receivers):
            receiver.refuse_if_unidentified()
        await self.abort()

    async def abort(self) -> None:
        self._server.close()
        self._received_streams.abort()
        for receiver in tuple(self._receivers):
            receiver.abort()
        for stream in self._streams.values():
            stream.abort()

    def forget_lost_peers(self, names: Iterable[str], oldest_step: int, returned: Iterable[str] = ()) -> None:
        names = tuple(names)
        self._received_streams.forget(names)
        super().forget_lost_peers(names, oldest_step, returned)

    def drop_connections(self, names: Iterable[str]) -> None:
        """End the connections of the streams to other nodes, as a fault of the network would."""
        for name in names:
            if name in self._streams:
                self._streams[name].drop_connection()

    def _drop_stream(self, target: str) -> None:
        if (stream := self._streams.pop(target, None)) is not None:
            stream.abort()

    async def _write_to_stream(self, target: str, message: Message) -> None:
        stream = self._streams.get(target) or self._open_stream(target)
        await stream.write_lock.acquire(self.size_on_wire(message))
        try:
            await stream.wait_until_writable()
        except BaseException:
            stream.write_lock.release()
            raise
        writing = self._start_message(target, stream, message)
        if writing is not None:
            await asyncio.shield(writing)

    def start_send(self, target: str, message: Message) -> SendFuture | None:
        """Write as much of a message as the kernel accepts at once.

        Start a task for the rest of the message, if there is any.
        """
        stream = self._streams.get(target)
        if self._shaping or stream is None or not stream.can_write_at_once or not stream.write_lock.try_acquire():
            return super().start_send(target, message)
        self._add_to_traffic(target, message)
        writing = self._start_message(target, stream, message)
        return None if writing is None else asyncio.shield(writing)  # a message that has begun is always completed

    def _start_message(self, target: str, stream: OutgoingStream, message: Message) -> asyncio.Task[None] | None:
        """Start to write a message; the lock of the stream is released at the end. Return the task, if any is left."""
        padding = make_padding_buffers(self._count_padding_bytes(message.size_bytes))
        data_on_wire = self._payload_on_wire(target, message)
        return stream.start_message(
            encode_message_prefix(message),
            message.data,
            *padding,
            data_on_wire=None if data_on_wire is message.data else data_on_wire,
        )

    def _count_tag_bytes(self, message: Message) -> int:
        tag_bytes = super()._count_tag_bytes(message)  # of the head
        return 2 * tag_bytes if message.size_bytes else tag_bytes

    def _open_stream(self, target: str) -> OutgoingStream:
        open_connection = partial(self._open_connection, target)
        self._streams[target] = OutgoingStream(
            target, open_connection, self._send_time_limit, self._clock, self._connection_log
        )
        return self._streams[target]

    async def _open_connection(self, target: str, opening: StreamOpening) -> OpenedConnection:
        context = None if self._tls is None else tls.make_client_tls_context(self._tls)
        key_agreement = StreamKeyAgreement(self._identity, target) if self._authenticates_messages else None
        proof = key_agreement.identity_proof if key_agreement else self._identity.make_identity_proof(target)
        return await open_connection(self._addresses[target], target, context, proof, opening, key_agreement)

    def _send_time_limit(self) -> SendTimeLimit:
        return SendTimeLimit(self._timeout_s, self._timeout_wall_s)

    @property
    def _max_unidentified_streams(self) -> int:
        """Number of incoming streams that may wait for a TLS handshake, and for a proof of identity."""
        return max(MAX_UNIDENTIFIED_STREAMS, 2 * len(self._addresses))

    def _make_receiver(self) -> StreamReceiver:
        """Return the receiver of a connection that another node has just opened."""
        return StreamReceiver(
            self._identity,
            self._mailbox,
            self._deliver if self._shaping else None,
            self._receivers,
            self._received_streams,
            self._count_padding_bytes,
            payload_limit_bytes=self._payload_limit_bytes,
            max_unidentified_streams=self._max_unidentified_streams,
            record_rejection=self._record_rejection,
            authenticates_messages=self._authenticates_messages,
        )

    def _make_tls_handshake(self, tls_context: ssl.SSLContext) -> IncomingTlsHandshake:
        """Return the TLS handshake of a connection that another process has just opened."""
        return IncomingTlsHandshake(
            tls_context,
            self._make_receiver,
            partial(self._record_rejection, claimed_sender=""),
            self._tls_handshakes,
            self._max_unidentified_streams,
        )
