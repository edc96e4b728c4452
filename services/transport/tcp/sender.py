"""The sending end of a stream: bytes out, the receiver's answers in."""

import asyncio
import socket
import ssl
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence

from services.cluster.addresses import Address
from services.runtime.transport import Buffer
from services.schema.errors import Refused

LENGTH = struct.Struct("<I")  # before a proof, and before an answer to it; an answer of no bytes is a welcome
COUNT = struct.Struct("<Q")  # of messages that the receiver took, behind the last
RETRY_S = 0.05  # nodes start within a second of each other
# So much waits in the kernel for its turn on the link, one piece: a small message must not wait behind all that a
# socket can hold. Less would leave a link idle whenever this node's turn on a core comes late.
UNSENT_BYTES = 1 << 20


class Line(ABC):
    """A stream to one neighbour; whoever writes has it alone."""

    @abstractmethod
    async def put(self, *buffers: Buffer) -> None:
        """Write these one behind the other; returns when the kernel has them, and their owner may change them.

        Raises:
            OSError: the stream has ended.
        """

    def put_at_once(self, *buffers: Buffer) -> Sequence[Buffer]:
        """Write what the kernel takes without waiting; the rest is for `put`.

        Raises:
            OSError: the stream has ended.
        """
        return buffers

    @abstractmethod
    async def get(self, size: int) -> bytes:
        """The next `size` bytes that the receiver says.

        Raises:
            OSError: the stream has ended.
        """

    @abstractmethod
    def close(self) -> None:
        """Hang up."""


class PlainLine(Line):
    """A socket by itself: payloads go from their array to the kernel and are copied nowhere else."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    async def put(self, *buffers: Buffer) -> None:
        left = self.put_at_once(*buffers)
        while left:
            await self._room()
            left = self.put_at_once(*left)

    def put_at_once(self, *buffers: Buffer) -> Sequence[Buffer]:
        views = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        while views:
            try:
                views = _behind(views, self._socket.sendmsg(views))
            except BlockingIOError:
                break
        return views

    async def get(self, size: int) -> bytes:
        loop, found = asyncio.get_running_loop(), b""
        while len(found) < size:
            more = await loop.sock_recv(self._socket, size - len(found))
            if not more:
                raise ConnectionResetError("the stream has ended")
            found += more
        return found

    def close(self) -> None:
        self._socket.close()

    async def _room(self) -> None:
        """Return when the socket takes more."""
        loop = asyncio.get_running_loop()
        writable: asyncio.Future[None] = loop.create_future()
        loop.add_writer(self._socket, _wake, writable)
        try:
            await writable
        finally:
            loop.remove_writer(self._socket)


class TlsLine(Line):
    """A socket under TLS, which copies everything anyway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        writer.transport.set_write_buffer_limits(0)  # what has been drained, the kernel has

    async def put(self, *buffers: Buffer) -> None:
        for buffer in buffers:
            self._writer.write(bytes(buffer))  # TLS keeps what it can't write yet, and the owner may go on
        await self._writer.drain()

    async def get(self, size: int) -> bytes:
        try:
            return await self._reader.readexactly(size)
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError("the stream has ended") from error

    def close(self) -> None:
        self._writer.close()


async def dial(address: Address, peer: str, context: ssl.SSLContext | None, proof: bytes) -> Line:
    """A stream to a node that listens, or will soon: in the clear or under TLS, and accepted.

    Raises:
        Refused: the node does not accept the proof, or one of the two does not accept the other's certificate.
        OSError: the stream broke off.
    """
    connected = await _connected(address)
    try:
        line = await _line(connected, peer, context)
        await line.put(LENGTH.pack(len(proof)), proof)
        (length,) = LENGTH.unpack(await line.get(LENGTH.size))
        answer = await line.get(length)
    except BaseException:
        connected.close()
        raise
    if answer:
        line.close()
        raise Refused(f"{peer}: {answer.decode(errors='replace')}")
    return line


async def _connected(address: Address) -> socket.socket:
    loop = asyncio.get_running_loop()
    while True:
        stream = socket.socket()
        stream.setblocking(False)  # noqa: FBT003 - the socket module names it so
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        try:
            await loop.sock_connect(stream, (address.host, address.port))
        except OSError:  # nobody listens yet; who has waited too long is cancelled
            stream.close()
            await asyncio.sleep(RETRY_S)
        except BaseException:
            stream.close()
            raise
        else:
            return stream


async def _line(connected: socket.socket, peer: str, context: ssl.SSLContext | None) -> Line:
    if context is None:
        return PlainLine(connected)
    try:
        return TlsLine(*await asyncio.open_connection(sock=connected, ssl=context, server_hostname=peer))
    except ssl.SSLError as error:
        raise Refused(f"{peer}: {error.reason or error}") from error


def _behind(views: list[memoryview], sent: int) -> list[memoryview]:
    """What is left of some buffers when so many bytes of them are sent."""
    while views and sent >= len(views[0]):
        sent -= len(views.pop(0))
    return [views[0][sent:], *views[1:]] if views else []


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)
