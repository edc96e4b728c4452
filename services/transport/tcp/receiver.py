"""The receiving end of a stream: who opens it, its messages, its last word."""

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import cast

import numpy as np

from services.runtime.identity import Identity
from services.runtime.transport import Message, Stage
from services.schema.errors import ProtocolError, Refused, Unreachable
from services.transport.codec import PREFIX_BYTES, message_of, parse, size_of, tag_of
from services.transport.mailbox import Mailbox
from services.transport.tcp.sender import COUNT, LENGTH

HELLO_S = 10.0  # wall seconds for a stranger to say who it is
PROOF_BYTES = 64 << 10  # at most, from somebody who is not known yet
AHEAD_BYTES = 16 << 10  # read at once: a small message is one call to the kernel, a large one hardly copied
READS = 8  # from one stream before others have their turn
ALIGNED = 64  # payloads begin at multiples of it, where a vector unit reads them fastest

Arrive = Callable[[str, Message], Awaitable[None]]


class Inlet(asyncio.BufferedProtocol):
    """One neighbour's stream; the kernel writes large payloads straight to where they will be read.

    `_conversation` is the format of the stream: it yields a buffer to be filled and goes on when it is full.
    """

    def __init__(self, identity: Identity, mailbox: Mailbox, arrive: Arrive | None, others: set["Inlet"]) -> None:
        """Nobody has come yet.

        Args:
            identity: of this node.
            mailbox: of this node.
            arrive: what shaping makes of a message before it reaches the mailbox; None when nothing does.
            others: all that are open; this one is among them from its handshake to its end.
        """
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._identity = identity
        self._mailbox = mailbox
        self._arrive = arrive
        self._others = others
        self._conversation = self._talk()
        self._missing = next(self._conversation)
        self._ahead = memoryview(bytearray(AHEAD_BYTES))
        self._socket: socket.socket | None = None  # to read from; None where TLS or shaping is in between
        self._least = 1  # bytes for which the kernel wakes this node
        self._source = ""
        self._ended = False
        self._waiting: deque[Message] = deque()  # for shaping
        self._carrier: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._others.add(self)
        if self._arrive is None and transport.get_extra_info("sslcontext") is None:
            connected = transport.get_extra_info("socket")
            self._socket = connected and connected.dup()
        self._patience = asyncio.get_running_loop().call_later(HELLO_S, self._transport.abort)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - it is always -1
        return self._missing if len(self._missing) >= AHEAD_BYTES else self._ahead

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has come; and what came meanwhile, since another turn of the event loop costs more than to look."""
        asked = len(self.get_buffer(-1))
        self._digest(nbytes)
        for _ in range(READS if self._socket is not None else 0):
            if nbytes < asked or self._transport.is_closing():
                break
            buffer = self.get_buffer(-1)
            asked, nbytes = len(buffer), self._read(buffer)
            if nbytes:
                self._digest(nbytes)
        self._ask()

    def _read(self, buffer: memoryview) -> int:
        """What the kernel has for this buffer; of the end of a stream, the event loop hears itself."""
        assert self._socket is not None  # noqa: S101 - only then
        try:
            return self._socket.recv_into(buffer)
        except OSError:  # it has nothing, or the stream has ended
            return 0

    def _ask(self) -> None:
        """Let the kernel wake this node when the rest of a payload is there: not for each of its packets."""
        least = len(self._missing) if len(self._missing) >= AHEAD_BYTES else 1
        if self._socket is not None and least != self._least:
            self._least = least
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)

    def _digest(self, nbytes: int) -> None:
        if len(self._missing) >= AHEAD_BYTES:
            self._filled(nbytes)
            return
        news = self._ahead[:nbytes]
        while news and not self._transport.is_closing():
            size = min(len(news), len(self._missing))
            self._missing[:size] = news[:size]
            news = news[size:]
            self._filled(size)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - a stream without its end has broken off
        self._patience.cancel()
        if self._socket is not None:
            self._socket.close()
        if self._carrier is None:
            self._close()

    def abort(self) -> None:
        """Hang up at once."""
        self._transport.abort()

    def _filled(self, size: int) -> None:
        """So much of the awaited buffer has come."""
        self._missing = self._missing[size:]
        if self._missing:
            return
        try:
            self._missing = next(self._conversation)
        except StopIteration:  # whatever comes now is not looked at
            self._missing = memoryview(bytearray(AHEAD_BYTES))
        except Refused as refusal:
            self._answer(str(refusal))
            self._transport.close()
        except ProtocolError:
            self._transport.abort()

    def _talk(self) -> Iterator[memoryview]:
        """The stream from its first byte to its last.

        Raises:
            Refused: whoever it is may not speak here.
            ProtocolError: what it says is no message.
        """
        length, prefix = bytearray(LENGTH.size), bytearray(PREFIX_BYTES)
        yield memoryview(length)
        proof = _room(_checked(*LENGTH.unpack(length)))
        if proof:
            yield proof
        self._source = self._identity.check(bytes(proof) or None)
        self._patience.cancel()
        self._answer("")
        count = 0
        while not self._ended:
            yield memoryview(prefix)
            values = parse(prefix)
            size = size_of(values)
            payload = self._mailbox.lent(self._source, tag_of(values), size) or _room(size)
            if payload:
                yield payload
            message = message_of(values, payload)
            self._ended = message.tag.stage == Stage.END
            if not self._ended:
                self._take(message)
                count += 1
        self._transport.write(COUNT.pack(count))

    def _answer(self, refusal: str) -> None:
        text = refusal.encode()
        self._transport.write(LENGTH.pack(len(text)) + text)

    def _take(self, message: Message) -> None:
        """Deliver a message; while shaping holds one up, the kernel keeps what comes behind it, and then the sender."""
        if self._arrive is None:
            self._mailbox.deliver(self._source, message)
            return
        self._waiting.append(message)
        if self._carrier is None:
            self._transport.pause_reading()
            self._carrier = asyncio.get_running_loop().create_task(self._carry(self._arrive))

    async def _carry(self, arrive: Arrive) -> None:
        while self._waiting:
            await arrive(self._source, self._waiting.popleft())
        self._carrier = None
        if self._transport.is_closing():
            self._close()
        else:
            self._transport.resume_reading()

    def _close(self) -> None:
        if self._source and not self._ended:
            self._mailbox.fail(self._source, Unreachable(f"{self._source} broke off its stream"))
        self._others.discard(self)
        if not self.over.done():
            self.over.set_result(None)


def _checked(length: int) -> int:
    """The length of a stranger's proof.

    Raises:
        Refused: nobody needs so much.
    """
    if length > PROOF_BYTES:
        raise Refused("the stream's identity is not of this run")
    return length


def _room(size: int) -> memoryview:
    """Memory for `size` bytes, not zeroed before it is written; the allocator keeps and reuses it."""
    room = np.empty(size + ALIGNED, np.uint8)
    start = -room.__array_interface__["data"][0] % ALIGNED
    return room[start : start + size].data
