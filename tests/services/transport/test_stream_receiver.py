"""However the kernel splits a stream, its receiver gets the same messages, or reports that the stream broke off."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compose.runs.certificates import issue_certificates
from services.runtime.identity import NodeIdentity
from services.runtime.transport import Message, MessageKind, MessageTag
from services.schema.errors import PeerUnreachable
from services.transport.codec import encode_message_prefix, make_padding_buffers
from services.transport.mailbox import Mailbox
from services.transport.streams.received_streams import STREAM_ID_BYTES, ReceivedStreams, StreamOpening
from services.transport.tcp.receiver import (
    ACKNOWLEDGED_BYTES,
    ACKNOWLEDGEMENT_DELAY_S,
    PAYLOAD_ALIGNMENT_BYTES,
    READ_AHEAD_BYTES,
    UNKNOWN_STREAM_COUNT,
    StreamReceiver,
)
from services.transport.tcp.sender import COMPLETION, COUNT_FORMAT, LENGTH_FORMAT

InVirtualTime = Callable[[Any], Any]

SIZES = (0, 1, 7, 100, READ_AHEAD_BYTES - 1, READ_AHEAD_BYTES, READ_AHEAD_BYTES + 1, 3 * READ_AHEAD_BYTES)
FIRST, AGAIN = (StreamOpening(b"s" * STREAM_ID_BYTES, is_reopened=reopened) for reopened in (False, True))
ACCEPTED = LENGTH_FORMAT.pack(0)


def encode(number: int, message: Message, padding_bytes: int = 0) -> bytes:
    """Return the bytes of a message with its number."""
    parts = (encode_message_prefix(message), message.data, *make_padding_buffers(padding_bytes))
    return b"".join((COUNT_FORMAT.pack(number), *parts))


def encode_end(number: int) -> bytes:
    return encode(number, Message(MessageTag(0, MessageKind.END_OF_STREAM)))


def streams_of(mailbox: Mailbox) -> ReceivedStreams:
    """Return the streams of a node whose peers refuse connections after 0.2 s, as a process does that has ended."""
    return ReceivedStreams(mailbox, lambda _source: asyncio.sleep(0.2), lambda: 60.0)


class RecordingConnection(asyncio.Transport):
    """A connection that records the answers of the receiver."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, NodeIdentity]:
    folder = tmp_path_factory.mktemp("run")
    issue_certificates("run", ("a", "b"), folder)
    return {name: NodeIdentity.read(name, folder / name) for name in "ab"}


def feed_stream(receiver: StreamReceiver, stream: bytes, cuts: list[int]) -> None:
    """Give a stream to a receiver as a kernel would: at most what its buffer holds, and only up to the next cut."""
    ends = sorted({min(cut, len(stream)) for cut in cuts} | {len(stream)})
    start = 0
    for end in ends:
        while start < end:
            buffer = receiver.get_buffer(-1)
            size = min(len(buffer), end - start)
            buffer[:size] = stream[start : start + size]
            receiver.buffer_updated(size)
            start += size


def identity_opening(identities: dict[str, NodeIdentity], opening: StreamOpening = FIRST) -> bytes:
    proof = identities["a"].make_identity_proof("b")
    return LENGTH_FORMAT.pack(len(proof)) + proof + opening.encode()


@given(
    sizes=st.lists(st.sampled_from(SIZES), max_size=6),
    cuts=st.lists(st.integers(0, 6 * 3 * READ_AHEAD_BYTES), max_size=20),
    padding_factor=st.sampled_from([0, 1, 40]),
)
def test_messages_do_not_depend_on_how_a_stream_is_split(
    sizes: list[int],
    cuts: list[int],
    padding_factor: int,
    identities: dict[str, NodeIdentity],
    in_virtual_time: InVirtualTime,
) -> None:
    """Payloads arrive unchanged and aligned, with and without padding; the sender gets the number of messages."""
    random = np.random.default_rng(len(cuts))
    payloads = [random.bytes(size) for size in sizes]
    tags = [MessageTag(0, MessageKind.PARTIAL_SUM, 0, piece) for piece in range(len(sizes))]
    parts = [
        encode(number, Message(tag, data), padding_factor * len(data))
        for number, (tag, data) in enumerate(zip(tags, payloads, strict=True), 1)
    ]
    end = encode_end(len(parts) + 1) + COMPLETION

    async def exchange() -> tuple[list[bytes], list[int], bytes]:
        mailbox, connection, open_receivers = Mailbox(1.0), RecordingConnection(), set[StreamReceiver]()
        streams = streams_of(mailbox)
        receiver = StreamReceiver(
            identities["b"],
            mailbox,
            None,
            open_receivers,
            streams,
            lambda payload_bytes: padding_factor * payload_bytes,
        )
        receiver.connection_made(connection)
        feed_stream(receiver, identity_opening(identities) + b"".join(parts) + end, cuts)
        receiver.connection_lost(None)
        received = [(await mailbox.receive("a", tag)).data for tag in tags]
        misalignments = [
            np.frombuffer(data, np.uint8).ctypes.data % PAYLOAD_ALIGNMENT_BYTES for data in received if len(data)
        ]
        assert (streams.unfinished, open_receivers) == ({}, set())
        return [bytes(data) for data in received], misalignments, connection.written

    received, misalignments, answer = in_virtual_time(exchange())

    assert received == payloads
    assert not any(misalignments)
    assert answer == ACCEPTED + COUNT_FORMAT.pack(0) + COUNT_FORMAT.pack(len(parts) + 1)


def test_all_bytes_that_the_kernel_has_are_read_in_one_iteration_of_the_loop(
    identities: dict[str, NodeIdentity],
) -> None:
    """An iteration per part costs more than the part; the receiver is woken only for the whole rest of a payload."""
    tags, data = [MessageTag(0, MessageKind.PARTIAL_SUM, 0, piece) for piece in range(3)], bytes(3 * READ_AHEAD_BYTES)
    *whole, last = (encode(number, Message(tag, data)) for number, tag in enumerate(tags, 1))
    read_sizes: list[int] = []

    class CountingReceiver(StreamReceiver):
        def buffer_updated(self, nbytes: int) -> None:
            read_sizes.append(nbytes)
            super().buffer_updated(nbytes)

    async def exchange() -> tuple[int, int, list[bytes]]:
        ours, theirs = socket.socketpair()
        mailbox, receiver = Mailbox(1.0), None
        streams = streams_of(mailbox)
        ours.sendall(identity_opening(identities) + b"".join(whole) + last[:-READ_AHEAD_BYTES])
        receiver = CountingReceiver(identities["b"], mailbox, None, set(), streams)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: receiver, theirs)
        received = [await mailbox.receive("a", tag) for tag in tags[:-1]]
        reads_before, low_water_bytes = len(read_sizes), theirs.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        ours.sendall(last[-READ_AHEAD_BYTES:] + encode_end(len(tags) + 1) + COMPLETION)
        received.append(await mailbox.receive("a", tags[-1]))
        ours.close()
        await asyncio.wait(streams.unfinished.values())
        return reads_before, low_water_bytes, [bytes(message.data) for message in received]

    assert asyncio.run(exchange()) == (1, READ_AHEAD_BYTES, [data] * 3)


@pytest.mark.parametrize("end_bytes", [0, 50, len(encode_end(2)) - 1], ids=["nothing", "half", "all but a byte"])
def test_a_stream_without_its_end_message_has_broken_off(
    end_bytes: int, identities: dict[str, NodeIdentity], in_virtual_time: InVirtualTime
) -> None:
    """The messages received before still count."""

    async def exchange() -> Message:
        mailbox, tag = Mailbox(1.0), MessageTag(0, MessageKind.PUSH)
        receiver = StreamReceiver(identities["b"], mailbox, None, set(), streams_of(mailbox))
        receiver.connection_made(RecordingConnection())
        feed_stream(receiver, identity_opening(identities) + encode(1, Message(tag)) + encode_end(2)[:end_bytes], [])
        receiver.connection_lost(None)
        with pytest.raises(PeerUnreachable, match="a broke off its stream"):
            await mailbox.receive("a", MessageTag(1, MessageKind.PUSH))
        return await mailbox.receive("a", tag)

    assert in_virtual_time(exchange()).tag.kind == MessageKind.PUSH


@pytest.mark.parametrize(
    "opening", [bytes(200), b"\xff" * 200, LENGTH_FORMAT.pack(0)], ids=["zeros", "a huge proof", "none"]
)
def test_a_stream_without_a_valid_identity_gets_an_error_and_is_closed(
    opening: bytes, identities: dict[str, NodeIdentity], in_virtual_time: InVirtualTime
) -> None:
    """The receiver keeps nothing that an unidentified sender sends."""

    async def exchange() -> RecordingConnection:
        connection = RecordingConnection()
        receiver = StreamReceiver(identities["b"], mailbox := Mailbox(1.0), None, set(), streams_of(mailbox))
        receiver.connection_made(connection)
        feed_stream(receiver, opening, [])
        receiver.connection_lost(None)
        return connection

    connection = in_virtual_time(exchange())

    assert connection.closed
    assert connection.written[LENGTH_FORMAT.size :].startswith(b"the stream")


def test_a_connection_without_any_bytes_is_closed(
    identities: dict[str, NodeIdentity], in_virtual_time: InVirtualTime
) -> None:
    """Every host may connect, but no unidentified connection may stay open."""

    async def exchange() -> bool:
        connection = RecordingConnection()
        mailbox = Mailbox(1.0)
        StreamReceiver(identities["b"], mailbox, None, set(), streams_of(mailbox)).connection_made(connection)
        await asyncio.sleep(60)
        return connection.closed

    assert in_virtual_time(exchange())


def test_an_identified_stream_with_invalid_bytes_has_broken_off(
    identities: dict[str, NodeIdentity], in_virtual_time: InVirtualTime
) -> None:
    """Invalid bytes must not be interpreted as a vector."""

    async def exchange() -> None:
        mailbox, connection = Mailbox(1.0), RecordingConnection()
        receiver = StreamReceiver(identities["b"], mailbox, None, set(), streams_of(mailbox))
        receiver.connection_made(connection)
        feed_stream(receiver, identity_opening(identities) + b"?" * 104, [])
        assert connection.closed
        receiver.connection_lost(None)
        with pytest.raises(PeerUnreachable):
            await mailbox.receive("a", MessageTag(0, MessageKind.PUSH))

    in_virtual_time(exchange())


def test_a_stream_with_another_padding_than_expected_has_broken_off(
    identities: dict[str, NodeIdentity], in_virtual_time: InVirtualTime
) -> None:
    """Padding is not announced before a payload: a wrong length would shift all later messages."""

    async def exchange() -> None:
        mailbox, connection = Mailbox(1.0), RecordingConnection()
        receiver = StreamReceiver(identities["b"], mailbox, None, set(), streams_of(mailbox), lambda _payload_bytes: 10)
        receiver.connection_made(connection)
        tag = MessageTag(0, MessageKind.PUSH)
        feed_stream(receiver, identity_opening(identities) + encode(1, Message(tag, b"word"), padding_bytes=11), [])
        assert connection.closed
        receiver.connection_lost(None)
        with pytest.raises(PeerUnreachable):
            await mailbox.receive("a", tag)

    in_virtual_time(exchange())


@given(cut=st.integers(0, 3 * 104 + 3 * 100 + 103), repeated=st.booleans())
def test_a_stream_continues_over_another_connection(
    cut: int, repeated: bool, identities: dict[str, NodeIdentity], in_virtual_time: InVirtualTime
) -> None:
    """The receiver states which messages it has, wherever the connection ended; a repeated message ends it, too."""
    tags = [MessageTag(0, MessageKind.PUSH, 0, piece) for piece in range(3)]
    parts = [encode(number, Message(tag, bytes([number]) * 100)) for number, tag in enumerate(tags, 1)]
    first_bytes = b"".join(parts) + encode_end(4)

    async def exchange() -> tuple[list[bytes], int]:
        mailbox, connections = Mailbox(1.0), [RecordingConnection(), RecordingConnection()]
        streams = streams_of(mailbox)
        before, after = (StreamReceiver(identities["b"], mailbox, None, set(), streams) for _ in range(2))
        before.connection_made(connections[0])
        complete = first_bytes[:cut] + (parts[0] if repeated and cut in {204, 408, 612} else b"")
        feed_stream(before, identity_opening(identities) + complete, [])
        before.connection_lost(None)
        await asyncio.sleep(0.1)
        after.connection_made(connections[1])
        feed_stream(after, identity_opening(identities, AGAIN), [])
        (count,) = COUNT_FORMAT.unpack(connections[1].written.removeprefix(ACCEPTED))
        rest = b"".join(parts[count:]) + encode_end(4) if count < 4 else b""
        feed_stream(after, rest + COMPLETION, [])
        after.connection_lost(None)
        assert not streams.unfinished
        await asyncio.sleep(10)
        return [bytes((await mailbox.receive("a", tag)).data) for tag in tags], count

    assert in_virtual_time(exchange()) == ([bytes([number]) * 100 for number in (1, 2, 3)], cut // len(parts[0]))


def test_a_stream_that_this_node_does_not_know_is_not_continued(
    identities: dict[str, NodeIdentity], in_virtual_time: InVirtualTime
) -> None:
    """A node that was started again must not get messages of its earlier life, nor one that peers have given up."""

    async def exchange() -> tuple[bytes, bool]:
        mailbox, connection = Mailbox(1.0), RecordingConnection()
        receiver = StreamReceiver(identities["b"], mailbox, None, set(), streams_of(mailbox))
        receiver.connection_made(connection)
        old = encode(1, Message(MessageTag(0, MessageKind.PUSH)))
        feed_stream(receiver, identity_opening(identities, AGAIN) + old, [])
        receiver.connection_lost(None)
        assert not mailbox._unclaimed
        return connection.written, connection.closed

    assert in_virtual_time(exchange()) == (ACCEPTED + COUNT_FORMAT.pack(UNKNOWN_STREAM_COUNT), True)


def test_messages_are_acknowledged_by_bytes_and_after_a_delay(
    identities: dict[str, NodeIdentity], in_virtual_time: InVirtualTime
) -> None:
    """Senders keep messages that are not acknowledged; an acknowledgement per small message would cost too much."""

    async def exchange() -> list[int]:
        mailbox, connection = Mailbox(1.0), RecordingConnection()
        receiver = StreamReceiver(identities["b"], mailbox, None, set(), streams_of(mailbox))
        receiver.connection_made(connection)
        feed_stream(receiver, identity_opening(identities), [])
        connection.written = b""
        for number, size in enumerate([10, ACKNOWLEDGED_BYTES, 10, 10], 1):
            feed_stream(receiver, encode(number, Message(MessageTag(number, MessageKind.PUSH), bytes(size))), [])
        await asyncio.sleep(2 * ACKNOWLEDGEMENT_DELAY_S)
        await asyncio.sleep(2 * ACKNOWLEDGEMENT_DELAY_S)
        receiver.connection_lost(None)
        return [count for (count,) in COUNT_FORMAT.iter_unpack(connection.written)]

    assert in_virtual_time(exchange()) == [2, 4]


def test_only_streams_without_a_connection_are_forgotten(
    identities: dict[str, NodeIdentity], in_virtual_time: InVirtualTime
) -> None:
    """A lost node may have been started again, and have opened its new stream before its loss is announced."""
    second = StreamOpening(b"t" * STREAM_ID_BYTES, is_reopened=False)

    async def exchange() -> tuple[int, int, bool]:
        mailbox = Mailbox(1.0)
        streams = streams_of(mailbox)
        receivers = [StreamReceiver(identities["b"], mailbox, None, set(), streams) for _ in range(2)]
        for receiver, opening in zip(receivers, (FIRST, second), strict=True):
            receiver.connection_made(RecordingConnection())
            feed_stream(receiver, identity_opening(identities, opening), [])
        receivers[0].connection_lost(None)
        streams.forget(["a"])
        kept = len(streams.unfinished)
        receivers[1].connection_lost(None)
        streams.forget(["a"])
        await asyncio.sleep(1)
        return kept, len(streams.unfinished), bool(mailbox._failed_sources)

    assert in_virtual_time(exchange()) == (1, 0, False)
