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
from services.transport.tcp.receiver import PAYLOAD_ALIGNMENT_BYTES, READ_AHEAD_BYTES, StreamReceiver
from services.transport.tcp.sender import COUNT_FORMAT, LENGTH_FORMAT

InVirtualTime = Callable[[Any], Any]

SIZES = (0, 1, 7, 100, READ_AHEAD_BYTES - 1, READ_AHEAD_BYTES, READ_AHEAD_BYTES + 1, 3 * READ_AHEAD_BYTES)
END = encode_message_prefix(Message(MessageTag(0, MessageKind.END_OF_STREAM)))


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


def identity_opening(identities: dict[str, NodeIdentity]) -> bytes:
    proof = identities["a"].make_identity_proof("b")
    return LENGTH_FORMAT.pack(len(proof)) + proof


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
        b"".join((encode_message_prefix(Message(tag, data)), data, *make_padding_buffers(padding_factor * len(data))))
        for tag, data in zip(tags, payloads, strict=True)
    ]

    async def exchange() -> tuple[list[bytes], list[int], bytes]:
        mailbox, connection, open_receivers = Mailbox(1.0), RecordingConnection(), set[StreamReceiver]()
        receiver = StreamReceiver(
            identities["b"], mailbox, None, open_receivers, lambda payload_bytes: padding_factor * payload_bytes
        )
        receiver.connection_made(connection)
        feed_stream(receiver, identity_opening(identities) + b"".join(parts) + END, cuts)
        receiver.connection_lost(None)
        received = [(await mailbox.receive("a", tag)).data for tag in tags]
        misalignments = [
            np.frombuffer(data, np.uint8).ctypes.data % PAYLOAD_ALIGNMENT_BYTES for data in received if len(data)
        ]
        assert (receiver.closed.done(), open_receivers) == (True, set())
        return [bytes(data) for data in received], misalignments, connection.written

    received, misalignments, answer = in_virtual_time(exchange())

    assert received == payloads
    assert not any(misalignments)
    assert answer == LENGTH_FORMAT.pack(0) + COUNT_FORMAT.pack(len(parts))


def test_all_bytes_that_the_kernel_has_are_read_in_one_iteration_of_the_loop(
    identities: dict[str, NodeIdentity],
) -> None:
    """An iteration per part costs more than the part; the receiver is woken only for the whole rest of a payload."""
    tags, data = [MessageTag(0, MessageKind.PARTIAL_SUM, 0, piece) for piece in range(3)], bytes(3 * READ_AHEAD_BYTES)
    *whole, last = (encode_message_prefix(Message(tag, data)) + data for tag in tags)
    read_sizes: list[int] = []

    class CountingReceiver(StreamReceiver):
        def buffer_updated(self, nbytes: int) -> None:
            read_sizes.append(nbytes)
            super().buffer_updated(nbytes)

    async def exchange() -> tuple[int, int, list[bytes]]:
        ours, theirs = socket.socketpair()
        mailbox, receiver = Mailbox(1.0), None
        ours.sendall(identity_opening(identities) + b"".join(whole) + last[:-READ_AHEAD_BYTES])
        receiver = CountingReceiver(identities["b"], mailbox, None, set())
        await asyncio.get_running_loop().connect_accepted_socket(lambda: receiver, theirs)
        received = [await mailbox.receive("a", tag) for tag in tags[:-1]]
        reads_before, low_water_bytes = len(read_sizes), theirs.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        ours.sendall(last[-READ_AHEAD_BYTES:] + END)
        received.append(await mailbox.receive("a", tags[-1]))
        ours.close()
        await receiver.closed
        return reads_before, low_water_bytes, [bytes(message.data) for message in received]

    assert asyncio.run(exchange()) == (1, READ_AHEAD_BYTES, [data] * 3)


@pytest.mark.parametrize("end_bytes", [0, 50, len(END) - 1], ids=["nothing", "half a prefix", "all but a byte"])
def test_a_stream_without_its_end_message_has_broken_off(
    end_bytes: int, identities: dict[str, NodeIdentity], in_virtual_time: InVirtualTime
) -> None:
    """The messages received before still count."""

    async def exchange() -> Message:
        mailbox, tag = Mailbox(1.0), MessageTag(0, MessageKind.PUSH)
        receiver = StreamReceiver(identities["b"], mailbox, None, set())
        receiver.connection_made(RecordingConnection())
        feed_stream(receiver, identity_opening(identities) + encode_message_prefix(Message(tag)) + END[:end_bytes], [])
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
        receiver = StreamReceiver(identities["b"], Mailbox(1.0), None, set())
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
        StreamReceiver(identities["b"], Mailbox(1.0), None, set()).connection_made(connection)
        await asyncio.sleep(60)
        return connection.closed

    assert in_virtual_time(exchange())


def test_an_identified_stream_with_invalid_bytes_has_broken_off(
    identities: dict[str, NodeIdentity], in_virtual_time: InVirtualTime
) -> None:
    """Invalid bytes must not be interpreted as a vector."""

    async def exchange() -> None:
        mailbox, connection = Mailbox(1.0), RecordingConnection()
        receiver = StreamReceiver(identities["b"], mailbox, None, set())
        receiver.connection_made(connection)
        feed_stream(receiver, identity_opening(identities) + b"?" * 96, [])
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
        receiver = StreamReceiver(identities["b"], mailbox, None, set(), lambda _payload_bytes: 10)
        receiver.connection_made(connection)
        tag = MessageTag(0, MessageKind.PUSH)
        padded = b"".join((encode_message_prefix(Message(tag, b"word")), b"word", *make_padding_buffers(11)))
        feed_stream(receiver, identity_opening(identities) + padded, [])
        assert connection.closed
        receiver.connection_lost(None)
        with pytest.raises(PeerUnreachable):
            await mailbox.receive("a", tag)

    in_virtual_time(exchange())
