"""Sending end of a TCP stream: writes messages and reads the receiver's replies."""

import asyncio
import socket
import ssl
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

from services.cluster.addresses import Address
from services.runtime.transport import Buffer
from services.schema.errors import AuthenticationError, PeerUnreachable
from services.transport.stream_authentication import MessageAuthenticator, StreamKeyAgreement
from services.transport.streams.listening_probe import RefusedConnectionTimer
from services.transport.streams.received_streams import StreamOpening
from services.transport.streams.unacknowledged import Frame

LENGTH_FORMAT = struct.Struct("<I")  # length of a proof, and of the reply to it; an empty reply accepts the proof
COUNT_FORMAT = struct.Struct("<Q")  # number of the last message that the receiver has: in its reply, then repeatedly
COMPLETION = b"\x01"  # last byte of a stream: the sender knows that all messages were received, and opens no connection
MAX_REPLY_BYTES = 64 << 10  # accepted from a receiver that is not known yet
CONNECT_RETRY_S = 0.05  # nodes start within a second of each other
MAX_READ_BYTES = 4096  # of acknowledgements
# Limit of the unsent data in the kernel: one piece, so that a small message does not wait behind all that a socket can
# hold. With less, a link would be idle whenever this node gets a core late.
MAX_UNSENT_BYTES = 1 << 20


class StreamSender(ABC):
    """Base class of an outgoing stream to one neighbour.

    Only one task may write to the stream at a time.
    """

    authenticator: MessageAuthenticator | None = None  # None if messages have no authentication tags

    def make_tags(self, frame: Frame) -> Sequence[bytes]:
        """Return the authentication tags of a message for this connection: of its head and of its payload.

        Return none if messages have no tags. `frame` has the buffers of the message: head, payload and padding.
        """
        if self.authenticator is None:
            return ()
        head, payload, *_ = frame
        return (
            self.authenticator.make_tag(head),
            self.authenticator.make_tag(payload) if memoryview(payload).nbytes else b"",
        )

    @abstractmethod
    async def write_to_socket(self, *buffers: Buffer) -> None:
        """Write buffers to the socket one after the other.

        Return when the kernel has a copy, so that the caller may change them.

        Raises:
            OSError: the stream has ended.
        """

    def write_and_return_unsent(self, *buffers: Buffer) -> Sequence[Buffer]:
        """Write as many bytes of the buffers as the kernel accepts at once.

        Return the remaining buffers, for `write_to_socket`.

        Raises:
            OSError: the stream has ended.
        """
        return buffers

    @abstractmethod
    async def read_reply(self, size_bytes: int) -> bytes:
        """Return the next `size_bytes` bytes that the other node sends back on this stream.

        Raises:
            OSError: the stream has ended.
        """

    @abstractmethod
    def read_acknowledgements(self, on_count: Callable[[int], None], on_end: Callable[[str], None]) -> None:
        """Call `on_count` with each count that the receiver sends, and `on_end` once with the reason of the end."""

    @abstractmethod
    def shut_down(self) -> None:
        """End the connection in both directions, as a fault of the network would. Both nodes then notice its end."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection. A write in progress ends with an OSError."""


class PlainStreamSender(StreamSender):
    """Outgoing stream over an unencrypted socket.

    The kernel copies payloads directly from their array.
    """

    def __init__(self, connected_socket: socket.socket) -> None:
        self._socket = connected_socket
        self._writable: asyncio.Future[None] | None = None  # of the write in progress

    async def write_to_socket(self, *buffers: Buffer) -> None:
        rest = self.write_and_return_unsent(*buffers)
        while rest:
            await self._wait_until_writable()
            rest = self.write_and_return_unsent(*rest)

    def write_and_return_unsent(self, *buffers: Buffer) -> Sequence[Buffer]:
        views = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        while views:
            try:
                views = _unsent_buffers(views, self._socket.sendmsg(views))
            except BlockingIOError:
                break
        return views

    async def read_reply(self, size_bytes: int) -> bytes:
        loop, data = asyncio.get_running_loop(), b""
        while len(data) < size_bytes:
            received = await loop.sock_recv(self._socket, size_bytes - len(data))
            if not received:
                raise ConnectionResetError("the stream has ended")
            data += received
        return data

    def read_acknowledgements(self, on_count: Callable[[int], None], on_end: Callable[[str], None]) -> None:
        counts = _CountReader(on_count)
        asyncio.get_running_loop().add_reader(self._socket, self._read_available_bytes, counts, on_end)

    def _read_available_bytes(self, counts: "_CountReader", on_end: Callable[[str], None]) -> None:
        try:
            data = self._socket.recv(MAX_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            data, reason = b"", f"{error}"
        else:
            reason = "the receiver has closed the connection"
        if data:
            counts.feed(data)
        else:
            asyncio.get_running_loop().remove_reader(self._socket)
            on_end(reason)

    def shut_down(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._socket)
            asyncio.get_running_loop().remove_writer(self._socket)
        if self._writable is not None and not self._writable.done():
            self._writable.set_exception(ConnectionResetError("the stream has ended"))
        self._socket.close()

    async def _wait_until_writable(self) -> None:
        if self._socket.fileno() < 0:
            raise ConnectionResetError("the stream has ended")
        loop = asyncio.get_running_loop()
        self._writable = loop.create_future()
        loop.add_writer(self._socket, _mark_future_done, self._writable)
        try:
            await self._writable
        finally:
            self._writable = None
            if self._socket.fileno() >= 0:
                loop.remove_writer(self._socket)


class TlsStreamSender(StreamSender):
    """Outgoing stream over a TLS connection.

    TLS copies all data.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._reading: asyncio.Task[None] | None = None
        # `drain` then returns when TLS has passed on all data. With an upper limit of 0, an empty buffer would count as
        # full: asyncio would pause and resume the writer in turn, and it could stay paused for ever.
        writer.transport.set_write_buffer_limits(high=1, low=0)

    async def write_to_socket(self, *buffers: Buffer) -> None:
        for buffer in buffers:
            self._writer.write(bytes(buffer))  # a copy: TLS keeps data that it can't write yet
        await self._writer.drain()

    async def read_reply(self, size_bytes: int) -> bytes:
        try:
            return await self._reader.readexactly(size_bytes)
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError("the stream has ended") from error

    def read_acknowledgements(self, on_count: Callable[[int], None], on_end: Callable[[str], None]) -> None:
        self._reading = asyncio.get_running_loop().create_task(self._read_until_end(_CountReader(on_count), on_end))

    async def _read_until_end(self, counts: "_CountReader", on_end: Callable[[str], None]) -> None:
        reason = "the receiver has closed the connection"
        try:
            while data := await self._reader.read(MAX_READ_BYTES):
                counts.feed(data)
        except OSError as error:
            reason = f"{error}"
        on_end(reason)

    def shut_down(self) -> None:
        self._writer.transport.abort()

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        if self._writer.transport.get_write_buffer_size():
            self._writer.transport.abort()  # the neighbour does not read
        else:
            self._writer.close()


class _CountReader:
    """Splits the bytes that a receiver sends back into counts."""

    def __init__(self, on_count: Callable[[int], None]) -> None:
        self._on_count = on_count
        self._rest = b""  # part of a count

    def feed(self, data: bytes) -> None:
        """Pass the newest complete count on: it includes those before."""
        data = self._rest + data
        complete_bytes = len(data) // COUNT_FORMAT.size * COUNT_FORMAT.size
        self._rest = data[complete_bytes:]
        if complete_bytes:
            self._on_count(*COUNT_FORMAT.unpack_from(data, complete_bytes - COUNT_FORMAT.size))


class OpenedConnection(NamedTuple):
    """Connection of a stream that the receiver has accepted."""

    sender: StreamSender
    received_count: int  # number of the last message of the stream that the receiver has


async def open_connection(
    address: Address,
    peer: str,
    tls_context: ssl.SSLContext | None,
    identity_proof: bytes,
    opening: StreamOpening,
    key_agreement: StreamKeyAgreement | None = None,
) -> OpenedConnection:
    """Open a connection of a stream to a node, which must accept `identity_proof`.

    The connection is unencrypted if `tls_context` is None. For the first connection of a stream, wait until the node
    listens or the caller is cancelled. With a `key_agreement`, to which the proof belongs, the connection has an
    authenticator of messages.

    Raises:
        AuthenticationError: the node rejects the proof, or one of the two nodes rejects the other's certificate or
            key.
        PeerUnreachable: the stream has had a connection before, and the node no longer listens.
        OSError: the connection has ended.
    """
    connected = await _connect_socket(address, peer, is_peer_known=opening.is_reopened)
    closing: Callable[[], None] = connected.close
    try:
        sender = await _make_stream_sender(connected, peer, tls_context)
        closing = sender.close
        await sender.write_to_socket(LENGTH_FORMAT.pack(len(identity_proof)), identity_proof, opening.encode())
        await _read_acceptance(sender, peer)
        if key_agreement is not None:
            sender.authenticator = key_agreement.complete(await _read_reply_with_length(sender, peer))
        (received_count,) = COUNT_FORMAT.unpack(await sender.read_reply(COUNT_FORMAT.size))
        return OpenedConnection(sender, received_count)
    except BaseException:
        closing()
        raise


async def _read_acceptance(sender: StreamSender, peer: str) -> None:
    """Read the reply of a node to the proof of identity.

    Raises:
        AuthenticationError: the node rejects the connection.
        OSError: the connection has ended.
    """
    if rejection := await _read_reply_with_length(sender, peer):
        raise AuthenticationError(f"{peer} rejected this node: {rejection.decode(errors='replace')}")


async def _read_reply_with_length(sender: StreamSender, peer: str) -> bytes:
    """Return the next reply of a node to the opening of a connection: the text of a rejection, or a key reply.

    Raises:
        AuthenticationError: the node announces a reply that is too long.
        OSError: the connection has ended.
    """
    (length,) = LENGTH_FORMAT.unpack(await sender.read_reply(LENGTH_FORMAT.size))
    if length > MAX_REPLY_BYTES:
        raise AuthenticationError(f"a reply of {peer} has {length} bytes; at most {MAX_REPLY_BYTES} are allowed")
    return await sender.read_reply(length)


async def _connect_socket(address: Address, peer: str, *, is_peer_known: bool) -> socket.socket:
    """Return a socket that is connected to `address`.

    Retry until a node listens there or the caller is cancelled; a node that was reached before has ended if it refuses
    connections for a while.

    Raises:
        PeerUnreachable: the node has ended.
    """
    loop, refused_connections = asyncio.get_running_loop(), RefusedConnectionTimer()
    while True:
        stream = socket.socket()
        stream.setblocking(False)  # noqa: FBT003 - the socket module's own signature
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MAX_UNSENT_BYTES)
        try:
            await loop.sock_connect(stream, (address.host, address.port))
        except OSError as error:  # no node listens yet
            stream.close()
            if is_peer_known and refused_connections.is_node_ended(error):
                raise PeerUnreachable(f"the stream to {peer} broke off: {error.strerror or error}") from error
            await asyncio.sleep(CONNECT_RETRY_S)
        except BaseException:
            stream.close()
            raise
        else:
            return stream


async def _make_stream_sender(connection: socket.socket, peer: str, tls_context: ssl.SSLContext | None) -> StreamSender:
    if tls_context is None:
        return PlainStreamSender(connection)
    try:
        reader, writer = await asyncio.open_connection(sock=connection, ssl=tls_context, server_hostname=peer)
    except ssl.SSLError as error:
        raise AuthenticationError(f"TLS handshake with {peer} failed: {error.reason or error}") from error
    return TlsStreamSender(reader, writer)


def _unsent_buffers(buffers: list[memoryview], sent_bytes: int) -> list[memoryview]:
    """Return the parts of a list of buffers that have not been sent yet.

    The first `sent_bytes` bytes of the list have been sent.
    """
    while buffers and sent_bytes >= len(buffers[0]):
        sent_bytes -= len(buffers.pop(0))
    return [buffers[0][sent_bytes:], *buffers[1:]] if buffers else []


def _mark_future_done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
