"""The codec by hand and protobuf write and read the same bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.transport import Message, MessageTag
from services.schema.errors import ProtocolError
from services.transport.codec import (
    PREFIX_BYTES,
    build_message,
    decode_message,
    decode_message_prefix,
    encode_message,
    encode_message_prefix,
    payload_size,
)
from services.wire.data_pb2 import DataHeader, DataMessage

fixed32, fixed64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
seconds = st.floats(allow_nan=False)
headers = st.builds(
    DataHeader,
    step=fixed64,
    kind=fixed32,
    chunk=fixed32,
    piece=fixed32,
    version=fixed64,
    samples=fixed64,
    link_start_s=seconds,
    link_end_s=seconds,
    update_s=seconds,
    pending_samples=fixed64,
    waited_s=st.floats(allow_nan=False, width=32),
    skips_wait=st.booleans(),
)
# Lengths are written seven bits per byte: both sides of every step.
payloads = st.one_of(
    st.binary(max_size=300), st.sampled_from([0, 1, 127, 128, 16383, 16384, 2**21 - 1, 2**21]).map(bytes)
)


def message(header: DataHeader, data: bytes) -> Message:
    return Message(
        MessageTag(header.step, header.kind, header.chunk, header.piece),
        data,
        header.version,
        header.samples,
        header.link_start_s,
        header.link_end_s,
        header.update_s,
        header.pending_samples,
        header.waited_s,
        header.skips_wait,
    )


@given(header=headers, data=payloads)
def test_protobuf_reads_what_the_codec_writes(header: DataHeader, data: bytes) -> None:
    """Whoever has only the .proto file must understand a node."""
    part = DataMessage.FromString(encode_message(message(header, data)))

    assert (part.header, part.payload) == (header, data)


@given(header=headers, data=st.binary(min_size=1, max_size=300), step=fixed64)
def test_what_came_is_passed_on_in_the_same_bytes(header: DataHeader, data: bytes, step: int) -> None:
    """A total goes round a ring under one name: nothing of it is copied. Under another it is a message of its own."""
    part = encode_message(message(header, data))
    came = decode_message(part)

    assert encode_message(came) is part
    renamed = came._replace(tag=came.tag._replace(step=step))
    assert encode_message(renamed) == encode_message(renamed._replace(data=data))


@given(header=headers, data=payloads)
def test_the_codec_reads_what_protobuf_writes(header: DataHeader, data: bytes) -> None:
    """And the other way round."""
    decoded = decode_message(DataMessage(header=header, payload=data).SerializeToString())

    assert decoded == message(header, data)


@given(header=headers, data=payloads)
def test_what_is_written_is_read_without_a_copy(header: DataHeader, data: bytes) -> None:
    """The codec is there to save copies: the payload is a view of what was received."""
    part = encode_message(message(header, data))

    decoded = decode_message(part)

    assert decoded == message(header, data)
    assert isinstance(decoded.data, memoryview)
    assert decoded.data.obj is part


@given(header=headers, data=payloads)
def test_a_prefix_alone_says_what_comes_behind_it(header: DataHeader, data: bytes) -> None:
    """A stream without frames: the receiver knows from a prefix of one length how much to wait for, and for what."""
    sent = message(header, data)

    values = decode_message_prefix(encode_message_prefix(sent))

    assert len(encode_message_prefix(sent)) == PREFIX_BYTES
    assert payload_size(values) == len(data)
    assert build_message(values, data) == sent
    assert PREFIX_BYTES % 32 == 0, "payloads are aligned where buffers are"


def test_a_message_of_defaults_is_read() -> None:
    """Protobuf leaves fields away that hold their default; all of them may."""
    nothing = Message(MessageTag(0, 0))

    assert decode_message(encode_message(nothing)) == nothing


@pytest.mark.parametrize(
    "part",
    [
        b"",
        b"\x0a",
        b"\x7a\x00",
        b"\x0a\x09\x09",  # a header that is cut off
        encode_message(Message(MessageTag(1, 1), b"abc"))[:-1],
        encode_message(Message(MessageTag(1, 1), b"abc")) + b"d",
        encode_message(Message(MessageTag(1, 1), b""))[:-2],  # no data at all
        encode_message(Message(MessageTag(1, 1), b"a" * 200))[:-200],
        encode_message(Message(MessageTag(1, 1), b"a" * 200))[:-201],  # a length that is cut off
        b"\x0a\x02\xff\xff\x7a\x00",  # a header that is none
    ],
)
def test_bytes_that_are_no_message_are_a_protocol_error(part: bytes) -> None:
    """What comes from the network may be anything; it must never be taken for a shorter vector."""
    with pytest.raises(ProtocolError):
        decode_message(part)
