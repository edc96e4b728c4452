"""Outgoing TCP stream: when it opens another connection, what it sends again, and when it gives up."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from services.runtime.clock import WallClock
from services.runtime.transport import Buffer
from services.schema.errors import DeadlineExceeded, NetworkError, PeerUnreachable
from services.transport.streams import unacknowledged
from services.transport.streams.received_streams import StreamOpening
from services.transport.tcp.outgoing_stream import MAX_CONNECTIONS_WITHOUT_PROGRESS, OutgoingStream, SendTimeLimit
from services.transport.tcp.receiver import UNKNOWN_STREAM_COUNT
from services.transport.tcp.sender import COUNT_FORMAT, OpenedConnection, StreamSender

InVirtualTime = Callable[[Any], Any]


class RecordingSender(StreamSender):
    """A connection that records what is written, and ends when the test says so."""

    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False

    async def write_to_socket(self, *buffers: Buffer) -> None:
        self.write_and_return_unsent(*buffers)

    def write_and_return_unsent(self, *buffers: Buffer) -> Sequence[Buffer]:
        if self.is_closed:
            raise ConnectionResetError("reset")
        self.written += b"".join(map(bytes, buffers))
        return ()

    async def read_reply(self, size_bytes: int) -> bytes:
        raise AssertionError("an open connection has no more replies to its opening")

    def read_acknowledgements(self, on_count: Callable[[int], None], on_end: Callable[[str], None]) -> None:
        self.acknowledge, self.end = on_count, on_end

    def shut_down(self) -> None:
        self.end("shut down")

    def close(self) -> None:
        self.is_closed = True


class Neighbour:
    """Accepts connections, and states the counts in `received_counts` one after the other, then the last one."""

    def __init__(self, *received_counts: int) -> None:
        self.received_counts = list(received_counts)
        self.openings: list[StreamOpening] = []
        self.senders: list[RecordingSender] = []

    async def open_connection(self, opening: StreamOpening) -> OpenedConnection:
        self.openings.append(opening)
        self.senders.append(RecordingSender())
        counts = self.received_counts
        return OpenedConnection(self.senders[-1], counts.pop(0) if len(counts) > 1 else counts[0])

    def stream(self) -> OutgoingStream:
        return OutgoingStream("b", self.open_connection, lambda: SendTimeLimit(5.0, 5.0), WallClock(), None)


async def send(stream: OutgoingStream, data: Buffer) -> None:
    await stream.write_lock.acquire(len(data))
    try:
        await stream.wait_until_writable()
    except NetworkError:
        stream.write_lock.release()
        raise
    if (writing := stream.start_message(b"<", data)) is not None:
        await writing


def numbered(*messages: tuple[int, bytes]) -> bytes:
    return b"".join(COUNT_FORMAT.pack(number) + b"<" + data for number, data in messages)


def test_messages_that_have_not_arrived_are_sent_again_as_they_were(in_virtual_time: InVirtualTime) -> None:
    """The caller may change its buffer after `send`; acknowledged messages are not sent again."""

    async def exchange() -> Neighbour:
        neighbour = Neighbour(0, 2)
        stream = neighbour.stream()
        buffer = bytearray(b"one")
        for data in (b"one", b"two", b"six"):
            buffer[:] = data
            await send(stream, memoryview(buffer))
        neighbour.senders[0].acknowledge(1)
        stream.drop_connection()
        await stream.wait_until_open()
        await send(stream, b"ten")
        stream.abort()
        return neighbour

    neighbour = in_virtual_time(exchange())

    assert neighbour.senders[0].written == numbered((1, b"one"), (2, b"two"), (3, b"six"))
    assert neighbour.senders[1].written == numbered((3, b"six"), (4, b"ten"))
    assert [opening.is_reopened for opening in neighbour.openings] == [False, True]
    assert len({opening.stream_id for opening in neighbour.openings}) == 1


def test_a_stream_ends_when_its_connections_make_no_progress(in_virtual_time: InVirtualTime) -> None:
    """A message that is not acceptable stays so; the time limit would be much later."""

    async def exchange() -> int:
        neighbour = Neighbour(0)
        stream = neighbour.stream()
        await send(stream, b"rejected")
        for _ in range(MAX_CONNECTIONS_WITHOUT_PROGRESS + 1):
            stream.drop_connection()
            await asyncio.sleep(0.1)
        with pytest.raises(PeerUnreachable, match="the stream to b broke off: 10 connections in a row ended"):
            await send(stream, b"next")
        return len(neighbour.openings)

    assert in_virtual_time(exchange()) == MAX_CONNECTIONS_WITHOUT_PROGRESS + 2


def test_an_idle_stream_may_lose_any_number_of_connections(in_virtual_time: InVirtualTime) -> None:
    """Nothing has to arrive, so nothing shows that another connection would not help."""

    async def exchange() -> bytes:
        neighbour = Neighbour(0)
        stream = neighbour.stream()
        for _ in range(3 * MAX_CONNECTIONS_WITHOUT_PROGRESS):
            await stream.wait_until_open()
            stream.drop_connection()
        await send(stream, b"one")
        stream.abort()
        return neighbour.senders[-1].written

    assert in_virtual_time(exchange()) == numbered((1, b"one"))


def test_a_node_that_was_started_again_gets_no_message_of_the_stream(in_virtual_time: InVirtualTime) -> None:
    """Its earlier process may have had parts of an exchange that the new one does not know."""

    async def exchange() -> bytes:
        neighbour = Neighbour(0, UNKNOWN_STREAM_COUNT)
        stream = neighbour.stream()
        await send(stream, b"old")
        stream.drop_connection()
        with pytest.raises(PeerUnreachable, match="the stream to b broke off: b was started again"):
            await send(stream, b"new")
        return neighbour.senders[1].written

    assert in_virtual_time(exchange()) == b""


def test_a_sender_waits_while_too_many_bytes_are_not_acknowledged(
    in_virtual_time: InVirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copies need memory. A neighbour that acknowledges nothing in time ends the stream for good."""
    monkeypatch.setattr(unacknowledged, "MAX_UNACKNOWLEDGED_BYTES", 20)

    async def exchange() -> tuple[bool, float]:
        neighbour = Neighbour(0)
        stream = neighbour.stream()
        for _ in range(2):
            await send(stream, bytes(5))
        third = asyncio.create_task(send(stream, bytes(5)))
        await asyncio.sleep(1)
        waited = not third.done()
        neighbour.senders[0].acknowledge(2)
        await third
        await send(stream, bytes(5))
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        for _ in range(2):
            with pytest.raises(DeadlineExceeded, match="b did not accept a message within 5 s"):
                await send(stream, bytes(5))
        return waited, loop.time() - begin_s

    assert in_virtual_time(exchange()) == (True, pytest.approx(5.0))


def test_an_acknowledgement_of_a_message_that_was_not_sent_ends_the_connection(in_virtual_time: InVirtualTime) -> None:
    """Altered bytes must not make the sender forget a message."""

    async def exchange() -> list[bytes]:
        neighbour = Neighbour(0)
        stream = neighbour.stream()
        await send(stream, b"one")
        neighbour.senders[0].acknowledge(7)
        await stream.wait_until_open()
        stream.abort()
        return [sender.written for sender in neighbour.senders]

    assert in_virtual_time(exchange()) == [numbered((1, b"one"))] * 2
