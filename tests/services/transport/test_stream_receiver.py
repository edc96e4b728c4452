"""However the kernel cuts a stream, the receiving end hears the same messages, or that it broke off."""

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
from services.transport.codec import encode_message_prefix
from services.transport.mailbox import Mailbox
from services.transport.tcp.receiver import PAYLOAD_ALIGNMENT_BYTES, READ_AHEAD_BYTES, StreamReceiver
from services.transport.tcp.sender import COUNT_FORMAT, LENGTH_FORMAT

Run = Callable[[Any], Any]

SIZES = (0, 1, 7, 100, READ_AHEAD_BYTES - 1, READ_AHEAD_BYTES, READ_AHEAD_BYTES + 1, 3 * READ_AHEAD_BYTES)
END = encode_message_prefix(Message(MessageTag(0, MessageKind.END_OF_STREAM)))


class Wire(asyncio.Transport):
    """A connection that remembers what was answered."""

    def __init__(self) -> None:
        super().__init__()
        self.said = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.said += data

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


def pour(inlet: StreamReceiver, stream: bytes, cuts: list[int]) -> None:
    """Give an inlet a stream as a kernel would: at most what it asks for, and at most up to the next cut."""
    ends = sorted({min(cut, len(stream)) for cut in cuts} | {len(stream)})
    start = 0
    for end in ends:
        while start < end:
            buffer = inlet.get_buffer(-1)
            size = min(len(buffer), end - start)
            buffer[:size] = stream[start : start + size]
            inlet.buffer_updated(size)
            start += size


def opening(identities: dict[str, NodeIdentity]) -> bytes:
    proof = identities["a"].make_identity_proof("b")
    return LENGTH_FORMAT.pack(len(proof)) + proof


@given(
    sizes=st.lists(st.sampled_from(SIZES), max_size=6),
    cuts=st.lists(st.integers(0, 6 * 3 * READ_AHEAD_BYTES), max_size=20),
)
def test_messages_do_not_depend_on_how_a_stream_is_cut(
    sizes: list[int], cuts: list[int], identities: dict[str, NodeIdentity], in_virtual_time: Run
) -> None:
    """Payloads arrive as they were, aligned, and the sender hears how many came."""
    random = np.random.default_rng(len(cuts))
    payloads = [random.bytes(size) for size in sizes]
    tags = [MessageTag(0, MessageKind.PARTIAL_SUM, 0, piece) for piece in range(len(sizes))]
    parts = [encode_message_prefix(Message(tag, data)) + data for tag, data in zip(tags, payloads, strict=True)]

    async def talk() -> tuple[list[bytes], list[int], bytes]:
        mailbox, wire, others = Mailbox(1.0), Wire(), set[StreamReceiver]()
        inlet = StreamReceiver(identities["b"], mailbox, None, others)
        inlet.connection_made(wire)
        pour(inlet, opening(identities) + b"".join(parts) + END, cuts)
        inlet.connection_lost(None)
        found = [(await mailbox.receive("a", tag)).data for tag in tags]
        places = [np.frombuffer(data, np.uint8).ctypes.data % PAYLOAD_ALIGNMENT_BYTES for data in found if len(data)]
        assert (inlet.closed.done(), others) == (True, set())
        return [bytes(data) for data in found], places, wire.said

    found, places, said = in_virtual_time(talk())

    assert found == payloads
    assert not any(places)
    assert said == LENGTH_FORMAT.pack(0) + COUNT_FORMAT.pack(len(parts))


def test_what_the_kernel_has_is_read_in_one_turn_of_the_loop(identities: dict[str, NodeIdentity]) -> None:
    """A turn for every part costs more than the part; and nobody is woken for less than the rest of a payload."""
    tags, data = [MessageTag(0, MessageKind.PARTIAL_SUM, 0, piece) for piece in range(3)], bytes(3 * READ_AHEAD_BYTES)
    *whole, last = (encode_message_prefix(Message(tag, data)) + data for tag in tags)
    turns: list[int] = []

    class Counting(StreamReceiver):
        def buffer_updated(self, nbytes: int) -> None:
            turns.append(nbytes)
            super().buffer_updated(nbytes)

    async def talk() -> tuple[int, int, list[bytes]]:
        ours, theirs = socket.socketpair()
        mailbox, inlet = Mailbox(1.0), None
        ours.sendall(opening(identities) + b"".join(whole) + last[:-READ_AHEAD_BYTES])
        inlet = Counting(identities["b"], mailbox, None, set())
        await asyncio.get_running_loop().connect_accepted_socket(lambda: inlet, theirs)
        found = [await mailbox.receive("a", tag) for tag in tags[:-1]]
        before, asked = len(turns), theirs.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        ours.sendall(last[-READ_AHEAD_BYTES:] + END)
        found.append(await mailbox.receive("a", tags[-1]))
        ours.close()
        await inlet.closed
        return before, asked, [bytes(message.data) for message in found]

    assert asyncio.run(talk()) == (1, READ_AHEAD_BYTES, [data] * 3)


@pytest.mark.parametrize("left", [0, 50, len(END) - 1], ids=["nothing", "half a prefix", "all but a byte"])
def test_a_stream_without_its_last_word_has_broken_off(
    left: int, identities: dict[str, NodeIdentity], in_virtual_time: Run
) -> None:
    """What had come before still counts."""

    async def talk() -> Message:
        mailbox, tag = Mailbox(1.0), MessageTag(0, MessageKind.PUSH)
        inlet = StreamReceiver(identities["b"], mailbox, None, set())
        inlet.connection_made(Wire())
        pour(inlet, opening(identities) + encode_message_prefix(Message(tag)) + END[:left], [])
        inlet.connection_lost(None)
        with pytest.raises(PeerUnreachable, match="a broke off its stream"):
            await mailbox.receive("a", MessageTag(1, MessageKind.PUSH))
        return await mailbox.receive("a", tag)

    assert in_virtual_time(talk()).tag.kind == MessageKind.PUSH


@pytest.mark.parametrize(
    "said", [bytes(200), b"\xff" * 200, LENGTH_FORMAT.pack(0)], ids=["zeros", "a huge proof", "none"]
)
def test_a_stranger_is_told_off_and_hung_up_on(
    said: bytes, identities: dict[str, NodeIdentity], in_virtual_time: Run
) -> None:
    """Before anything is kept that it sends."""

    async def talk() -> Wire:
        wire = Wire()
        inlet = StreamReceiver(identities["b"], Mailbox(1.0), None, set())
        inlet.connection_made(wire)
        pour(inlet, said, [])
        inlet.connection_lost(None)
        return wire

    wire = in_virtual_time(talk())

    assert wire.closed
    assert wire.said[LENGTH_FORMAT.size :].startswith(b"the stream")


def test_a_stranger_who_says_nothing_is_hung_up_on(identities: dict[str, NodeIdentity], in_virtual_time: Run) -> None:
    """Anybody may knock, and nobody may keep the door open."""

    async def talk() -> bool:
        wire = Wire()
        StreamReceiver(identities["b"], Mailbox(1.0), None, set()).connection_made(wire)
        await asyncio.sleep(60)
        return wire.closed

    assert in_virtual_time(talk())


def test_a_neighbour_that_talks_nonsense_has_broken_off(
    identities: dict[str, NodeIdentity], in_virtual_time: Run
) -> None:
    """Whatever it is, it must not be taken for a vector."""

    async def talk() -> None:
        mailbox, wire = Mailbox(1.0), Wire()
        inlet = StreamReceiver(identities["b"], mailbox, None, set())
        inlet.connection_made(wire)
        pour(inlet, opening(identities) + b"?" * 96, [])
        assert wire.closed
        inlet.connection_lost(None)
        with pytest.raises(PeerUnreachable):
            await mailbox.receive("a", MessageTag(0, MessageKind.PUSH))

    in_virtual_time(talk())
