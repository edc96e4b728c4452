"""The hand-written codec and protobuf write and read the same bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.transport import Message, MessageTag
from services.schema.errors import ProtocolError
from services.transport.codec import (
    PADDING_HEADER_BYTES,
    PREFIX_BYTES,
    build_message,
    count_payload_bytes,
    decode_message,
    decode_message_prefix,
    encode_message,
    encode_message_prefix,
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
# Lengths are encoded with seven bits per byte: sizes on both sides of each threshold.
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
    """A program that has only the .proto file must be able to read the messages of a node."""
    encoded = DataMessage.FromString(encode_message(message(header, data)))

    assert (encoded.header, encoded.payload) == (header, data)


@given(header=headers, data=payloads, padding_bytes=st.sampled_from([1, 5, 127, 128, (1 << 20) - 1, (1 << 20) + 3]))
def test_padding_after_the_payload_is_valid_protobuf_and_discarded(
    header: DataHeader, data: bytes, padding_bytes: int
) -> None:
    """A message of a declared size has zeros that no receiver may take for a payload, or keep in memory."""
    encoded = encode_message(message(header, data), padding_bytes)
    by_protobuf, received = DataMessage.FromString(encoded), decode_message(encoded)

    assert len(encoded) == PREFIX_BYTES + len(data) + PADDING_HEADER_BYTES + padding_bytes
    assert (by_protobuf.payload, by_protobuf.declared_padding) == (data, bytes(padding_bytes))
    assert received == message(header, data)
    assert isinstance(received.data, bytes), "a view would keep the padding in memory"


def test_bytes_after_a_payload_that_are_not_padding_are_an_error() -> None:
    """A message that is longer than it announces was not written by this codec."""
    encoded = encode_message(Message(MessageTag(0, 1), b"abcd"), padding_bytes=9)
    for broken in (encoded[:-1], encoded + b"0", encoded[: PREFIX_BYTES + 4] + b"?" * 15):
        with pytest.raises(ProtocolError, match="payload"):
            decode_message(broken)


@given(header=headers, data=st.binary(min_size=1, max_size=300), step=fixed64)
def test_a_received_message_is_forwarded_in_the_same_bytes(header: DataHeader, data: bytes, step: int) -> None:
    """A ring forwards a total under one tag without a copy. Under another tag it is a new message."""
    encoded = encode_message(message(header, data))
    received = decode_message(encoded)

    assert encode_message(received) is encoded
    renamed = received._replace(tag=received.tag._replace(step=step))
    assert encode_message(renamed) == encode_message(renamed._replace(data=data))


@given(header=headers, data=payloads)
def test_the_codec_reads_what_protobuf_writes(header: DataHeader, data: bytes) -> None:
    """Ensayo must be able to read the messages of a program that has only the .proto file."""
    decoded = decode_message(DataMessage(header=header, payload=data).SerializeToString())

    assert decoded == message(header, data)


@given(header=headers, data=payloads)
def test_a_message_is_decoded_without_a_copy_of_its_payload(header: DataHeader, data: bytes) -> None:
    """The codec exists to avoid copies: the payload is a view of the received bytes."""
    encoded = encode_message(message(header, data))

    decoded = decode_message(encoded)

    assert decoded == message(header, data)
    assert isinstance(decoded.data, memoryview)
    assert decoded.data.obj is encoded


@given(header=headers, data=payloads)
def test_a_prefix_contains_the_header_and_the_size_of_the_payload(header: DataHeader, data: bytes) -> None:
    """A stream has no frames: a prefix of constant length gives the receiver the header and the number of bytes."""
    sent = message(header, data)

    values = decode_message_prefix(encode_message_prefix(sent))

    assert len(encode_message_prefix(sent)) == PREFIX_BYTES
    assert count_payload_bytes(values) == len(data)
    assert build_message(values, data) == sent
    assert PREFIX_BYTES % 32 == 0, "payloads are aligned where buffers are"


def test_a_message_with_only_default_values_is_decoded() -> None:
    """Protobuf omits fields that have their default value, possibly all of them."""
    default_message = Message(MessageTag(0, 0))

    assert decode_message(encode_message(default_message)) == default_message


@pytest.mark.parametrize(
    "encoded",
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
        b"\x0a\x02\xff\xff\x7a\x00",  # an invalid header
    ],
)
def test_invalid_bytes_raise_a_protocol_error(encoded: bytes) -> None:
    """The network may deliver any bytes; they must never be taken for a shorter vector."""
    with pytest.raises(ProtocolError):
        decode_message(encoded)
