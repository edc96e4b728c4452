"""Sending end of a TCP stream: writes messages and reads the receiver's replies."""

import asyncio
import socket
import ssl
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence

from services.cluster.addresses import Address
from services.runtime.transport import Buffer
from services.schema.errors import AuthenticationError
from services.transport.stream_authentication import MessageAuthenticator, StreamKeyAgreement

LENGTH_FORMAT = struct.Struct("<I")  # length of a proof, and of the reply to it; an empty reply accepts the proof
COUNT_FORMAT = struct.Struct("<Q")  # number of messages that the receiver got, sent after the last one
MAX_KEY_REPLY_BYTES = 64 << 10  # accepted from a receiver that is not known yet
CONNECT_RETRY_S = 0.05  # nodes start within a second of each other
# Limit of the unsent data in the kernel: one piece, so that a small message does not wait behind all that a socket can
# hold. With less, a link would be idle whenever this node gets a core late.
MAX_UNSENT_BYTES = 1 << 20


class StreamSender(ABC):
    """Base class of an outgoing stream to one neighbour.

    Only one task may write to the stream at a time.
    """

    authenticator: MessageAuthenticator | None = None  # None if messages have no authentication tags

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
    def close(self) -> None:
        """Close the connection."""


class PlainStreamSender(StreamSender):
    """Outgoing stream over an unencrypted socket.

    The kernel copies payloads directly from their array.
    """

    def __init__(self, connected_socket: socket.socket) -> None:
        self._socket = connected_socket

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

    def close(self) -> None:
        self._socket.close()

    async def _wait_until_writable(self) -> None:
        loop = asyncio.get_running_loop()
        writable: asyncio.Future[None] = loop.create_future()
        loop.add_writer(self._socket, _mark_future_done, writable)
        try:
            await writable
        finally:
            loop.remove_writer(self._socket)


class TlsStreamSender(StreamSender):
    """Outgoing stream over a TLS connection.

    TLS copies all data.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
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

    def close(self) -> None:
        self._writer.close()


async def open_stream(
    address: Address,
    peer: str,
    tls_context: ssl.SSLContext | None,
    identity_proof: bytes,
    key_agreement: StreamKeyAgreement | None = None,
) -> StreamSender:
    """Open a stream to a node as soon as the node listens.

    Return the stream when the node has accepted `identity_proof`. The stream is unencrypted if `tls_context` is None.
    With a `key_agreement`, to which the proof belongs, the stream has an authenticator of messages.

    Raises:
        AuthenticationError: the node rejects the proof, or one of the two nodes rejects the other's certificate or key.
        OSError: the stream broke off.
    """
    connected = await _connect_socket(address)
    try:
        sender = await _make_stream_sender(connected, peer, tls_context)
        await sender.write_to_socket(LENGTH_FORMAT.pack(len(identity_proof)), identity_proof)
        (length,) = LENGTH_FORMAT.unpack(await sender.read_reply(LENGTH_FORMAT.size))
        rejection = await sender.read_reply(length)
        if key_agreement is not None and not rejection:
            sender.authenticator = key_agreement.complete(await _read_key_reply(sender, peer))
    except BaseException:
        connected.close()
        raise
    if rejection:
        sender.close()
        raise AuthenticationError(f"{peer} rejected this node: {rejection.decode(errors='replace')}")
    return sender


async def _read_key_reply(sender: StreamSender, peer: str) -> bytes:
    """Return the reply of a node to the agreement on the key of a stream.

    Raises:
        AuthenticationError: the node announces a reply that is too long.
        OSError: the stream broke off.
    """
    (length,) = LENGTH_FORMAT.unpack(await sender.read_reply(LENGTH_FORMAT.size))
    if length > MAX_KEY_REPLY_BYTES:
        raise AuthenticationError(
            f"the key reply of {peer} has {length} bytes; at most {MAX_KEY_REPLY_BYTES} are allowed"
        )
    return await sender.read_reply(length)


async def _connect_socket(address: Address) -> socket.socket:
    """Return a socket that is connected to `address`.

    Retry until a node listens there or the caller is cancelled.
    """
    loop = asyncio.get_running_loop()
    while True:
        stream = socket.socket()
        stream.setblocking(False)  # noqa: FBT003 - the socket module's own signature
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MAX_UNSENT_BYTES)
        try:
            await loop.sock_connect(stream, (address.host, address.port))
        except OSError:  # no node listens yet
            stream.close()
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
