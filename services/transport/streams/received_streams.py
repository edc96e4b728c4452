"""Streams that a node receives: which messages have arrived, over all connections of a stream."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from services.schema.errors import PeerUnreachable, ProtocolError
from services.transport.mailbox import Mailbox

STREAM_ID_BYTES = 16
COMPLETION_TIMEOUT_S = 5.0  # wall seconds for which a complete stream whose connection has ended may be opened again
_OPENING_FORMAT = struct.Struct(f"<{STREAM_ID_BYTES}s?")
OPENING_BYTES = _OPENING_FORMAT.size


class StreamOpening(NamedTuple):
    """Stream to which a new connection belongs, as its sender states after its proof of identity."""

    stream_id: bytes  # random; of `STREAM_ID_BYTES` bytes
    is_reopened: bool  # whether the receiver has accepted another connection of the stream before

    def encode(self) -> bytes:
        """Return the `OPENING_BYTES` bytes that follow the proof of identity."""
        return _OPENING_FORMAT.pack(*self)

    @classmethod
    def decode(cls, data: bytes) -> "StreamOpening":
        """Read the bytes that follow the proof of identity."""
        return cls(*_OPENING_FORMAT.unpack(data))


class IncomingConnection(Protocol):
    """Connection of a stream from another node."""

    def abort(self) -> None:
        """Close the connection at once."""


@dataclass(eq=False)
class ReceivedStream:
    """Stream from one node, over all of its connections."""

    source: str
    stream_id: bytes
    connection: IncomingConnection | None = None  # None while the sender has none
    received_count: int = 0  # number of the last message that has arrived
    has_ended: bool = False  # the last message has arrived
    is_complete: bool = False  # the sender knows that all messages have arrived
    closed: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    waiting_task: asyncio.Task[None] | None = None  # waits for the next connection
    delivery_task: asyncio.Task[None] | None = None  # delays messages as the emulated network would, and delivers them

    def check_number(self, number: int) -> None:
        """Check that a message is the next one of the stream.

        Raises:
            ProtocolError: a message is missing, or has arrived before.
        """
        if number != self.received_count + 1:
            raise ProtocolError(
                f"message {number} of a stream has arrived instead of message {self.received_count + 1}"
            )


class ReceivedStreams:
    """Streams that a node receives, one from each sender.

    A stream outlives its connections. When a connection ends early, the sender opens another one and sends again what
    has not arrived. The stream has failed if the sender has ended, or opens no connection in time.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        wait_until_ended: Callable[[str], Awaitable[None]],
        reopening_timeout_s: Callable[[], float],
    ) -> None:
        """Create the streams of a node that has not received any.

        Args:
            mailbox: gets an error for each stream that has failed.
            wait_until_ended: returns when the process of a node, given by its name, has ended.
            reopening_timeout_s: returns the wall seconds within which a sender must open its stream again.
        """
        self._mailbox = mailbox
        self._wait_until_ended = wait_until_ended
        self._reopening_timeout_s = reopening_timeout_s
        self._streams: dict[str, ReceivedStream] = {}

    @property
    def unfinished(self) -> dict[str, asyncio.Future[None]]:
        """Futures of all streams that are not closed, by source; they are done when the streams are closed."""
        return {source: stream.closed for source, stream in self._streams.items() if not stream.closed.done()}

    def accept_connection(
        self, source: str, opening: StreamOpening, connection: IncomingConnection
    ) -> ReceivedStream | None:
        """Return the stream to which a new connection of a verified sender belongs.

        The new connection replaces the stream's earlier one. A sender that begins another stream has given up its
        earlier one. Return None if the sender continues a stream that this node does not know: one of the two has been
        started again, or was considered lost.
        """
        stream = self._streams.get(source)
        if stream is None or stream.stream_id != opening.stream_id:
            if opening.is_reopened:
                return None
            self._forget(source)
            stream = self._streams[source] = ReceivedStream(source, opening.stream_id)
        if stream.connection is not None:
            earlier, stream.connection = stream.connection, None
            earlier.abort()
        self._stop_waiting(stream)
        stream.connection = connection
        return stream

    def end_connection(self, stream: ReceivedStream, connection: IncomingConnection) -> None:
        """Handle the end of a connection: close the stream, or wait for its next connection."""
        if stream.connection is not connection:
            return
        stream.connection = None
        if stream.is_complete:
            self._close(stream)
        elif not stream.closed.done():
            stream.waiting_task = asyncio.get_running_loop().create_task(self._wait_for_connection(stream))

    def forget(self, sources: Iterable[str]) -> None:
        """Forget the streams from nodes that were lost; none of them can be opened again.

        A stream that has a connection is kept: a node that was started again may have opened it already.
        """
        for source in sources:
            stream = self._streams.get(source)
            if stream is not None and stream.connection is None:
                self._forget(source)

    def abort(self) -> None:
        """Close all connections at once, and wait for no other ones."""
        for source in tuple(self._streams):
            self._forget(source)

    def _forget(self, source: str) -> None:
        """Close the stream from a node, and its connection, which may still have messages of an earlier process."""
        if (stream := self._streams.pop(source, None)) is not None:
            connection, stream.connection = stream.connection, None
            self._close(stream)
            if connection is not None:
                connection.abort()

    async def _wait_for_connection(self, stream: ReceivedStream) -> None:
        """Wait until the stream has a connection again, which cancels this task, or until it has failed."""
        timeout_s = COMPLETION_TIMEOUT_S if stream.has_ended else self._reopening_timeout_s()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._wait_until_ended(stream.source)
        stream.waiting_task = None
        if not stream.has_ended:
            self._mailbox.mark_source_failed(stream.source, PeerUnreachable(f"{stream.source} broke off its stream"))
        if self._streams.get(stream.source) is stream:
            del self._streams[stream.source]
        self._close(stream)

    def _close(self, stream: ReceivedStream) -> None:
        self._stop_waiting(stream)
        if not stream.closed.done():
            stream.closed.set_result(None)

    def _stop_waiting(self, stream: ReceivedStream) -> None:
        if stream.waiting_task is not None:
            stream.waiting_task.cancel()
            stream.waiting_task = None
