"""Encoding of bulk messages without the payload copies of protobuf.

This module reads and writes the message `DataMessage` of data.proto. Protobuf copies a payload twice on each side. Here
everything before the payload is a prefix of constant length, `PREFIX_BYTES`, and is packed in one call; the received
payload is a view of the receive buffer (`make bench` measures both). The length of the prefix is a multiple of the
alignment of arrays: sums over payloads at odd addresses take 1.75 times as long. Both data planes use this encoding:
gRPC with one buffer per message, TCP as a stream of prefixes and payloads.

A message that a scenario declares to be larger than its payload has padding after the payload: a header of
`PADDING_HEADER_BYTES` and zeros. Receivers discard both.
"""

import struct
from functools import lru_cache
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from services.runtime.transport import Buffer, Message, MessageTag
from services.schema.errors import ProtocolError
from services.wire.data_pb2 import DataMessage

# Values of a decoded prefix: the fields of tag and message in their order, then the length of the payload as a varint.
PrefixFields: TypeAlias = tuple[Any, ...]

PREFIX_BYTES = 96
PADDING_HEADER_BYTES = 6  # key and length of the padding after the payload
_PADDING_KEY = 0x6A
_ZEROS = memoryview(bytes(1 << 20))  # shared by the padding of all messages
_MAX_SIZE_BITS = 35  # of a payload's length: five bytes of a varint

# Key and value of the header as a whole, of its twelve fields and of the padding; then key and length of the payload.
_PREFIX_FORMAT = struct.Struct("<BB BQ BIBIBI BQBQ BdBdBd BQBfB? BBx B5s")
# The same bytes in two parts: the bytes that are the same in every message, and the values of the fields.
_CONSTANT_BYTES_FORMAT = struct.Struct("<BB B8x B4xB4xB4x B8xB8x B8xB8xB8x B8xB4xBx BBx B5x")
_FIELDS_FORMAT = struct.Struct("<xx xQ xIxIxI xQxQ xdxdxd xQxfx? xxx x5s")
_KEYS = (0x0A, 0x09, 0x15, 0x1D, 0x25, 0x29, 0x31, 0x39, 0x41, 0x49, 0x51, 0x5D, 0x60, 0x72, 0x7A)
_HEADER_BYTES, _PAD_BYTES = 85, 1
_CONSTANT_BYTES = (_KEYS[0], _HEADER_BYTES, *_KEYS[1:14], _PAD_BYTES, _KEYS[14])


def encode_message(message: Message, padding_bytes: int = 0) -> bytes:
    """Return a message as bytes: a serialised `DataMessage` of data.proto.

    This copies the payload once, or not at all if the payload was received in a message with the same prefix. Zeros of
    `padding_bytes` follow the payload.
    """
    encoded_prefix = encode_message_prefix(message)
    if padding_bytes:
        return b"".join((encoded_prefix, message.data, *make_padding_buffers(padding_bytes)))
    return _find_forwardable_message(encoded_prefix, message.data) or b"".join((encoded_prefix, message.data))


def make_padding_buffers(padding_bytes: int) -> tuple[Buffer, ...]:
    """Return the buffers to write after a payload so that `padding_bytes` zeros follow it.

    The first buffer is the header of the padding. The result is empty without padding.
    """
    if not padding_bytes:
        return ()
    whole_buffers, rest_bytes = divmod(padding_bytes, len(_ZEROS))
    return (encode_padding_header(padding_bytes), *(_ZEROS,) * whole_buffers, _ZEROS[:rest_bytes])


def encode_padding_header(padding_bytes: int) -> bytes:
    """Return the header of the padding after a payload: key and length of the padding."""
    return bytes((_PADDING_KEY,)) + _encode_payload_size(padding_bytes)


def _find_forwardable_message(encoded_prefix: bytes, payload_buffer: Buffer) -> bytes | None:
    """Return the received message that contains `payload_buffer` if it can be sent again.

    The received message must equal the message to send. Return None if the messages differ, or if `payload_buffer` is
    not part of a received message.
    """
    received = payload_buffer.obj if isinstance(payload_buffer, memoryview) else None
    if not isinstance(received, bytes) or len(received) != PREFIX_BYTES + len(payload_buffer):
        return None
    return received if received.startswith(encoded_prefix) else None


def encode_message_prefix(message: Message) -> bytes:
    """Return the prefix of a serialised `DataMessage`: all bytes before the payload.

    The prefix is `PREFIX_BYTES` long.
    """
    head, step, kind, chunk, piece, version, samples, start, end, update, pending, waited, skips, pad, payload = _KEYS
    return _PREFIX_FORMAT.pack(
        *(head, _HEADER_BYTES),
        *(step, message.tag.step, kind, message.tag.kind, chunk, message.tag.chunk, piece, message.tag.piece),
        *(version, message.version, samples, message.samples),
        *(start, message.link_start_s, end, message.link_end_s, update, message.update_s),
        *(pending, message.pending_samples, waited, message.waited_s, skips, message.skips_wait),
        *(pad, _PAD_BYTES, payload, _encode_payload_size(message.size_bytes)),
    )


def decode_message(encoded_message: Buffer) -> Message:
    """Decode a serialised `DataMessage`, and return the message.

    If this codec wrote it without padding, the payload is not copied.

    Raises:
        ProtocolError: the bytes are not a `DataMessage`.
    """
    if (fields := _unpack_prefix(encoded_message)) is None:
        return _decode_with_protobuf(bytes(encoded_message))
    payload = memoryview(encoded_message)[PREFIX_BYTES:]
    if (size_bytes := count_payload_bytes(fields)) == payload.nbytes:
        return build_message(fields, payload)
    if not _is_padding(payload[size_bytes:]):
        raise ProtocolError(f"a message announces a payload of {size_bytes} bytes and has {payload.nbytes}")
    return build_message(fields, bytes(payload[:size_bytes]))  # a copy: a view would keep the padding in memory


def _is_padding(buffer: memoryview) -> bool:
    """Return whether the bytes after a payload are padding: its header, and as many bytes as the header states."""
    header, padding = buffer[:PADDING_HEADER_BYTES], buffer[PADDING_HEADER_BYTES:]
    return len(header) == PADDING_HEADER_BYTES and header == encode_padding_header(padding.nbytes)


def decode_message_prefix(encoded_prefix: Buffer | bytearray) -> PrefixFields:
    """Decode the prefix of a message, and return the fields of the prefix.

    The fields are all metadata of the message.

    Raises:
        ProtocolError: the bytes are not a prefix that this codec wrote.
    """
    if (fields := _unpack_prefix(encoded_prefix)) is None:
        raise ProtocolError(f"a message does not begin with a valid prefix of {PREFIX_BYTES} bytes")
    return fields


def count_payload_bytes(message_prefix_fields: PrefixFields) -> int:
    """Return the length, in bytes, of the payload that follows a message prefix.

    The length is taken from the decoded fields of the prefix.
    """
    return _decode_payload_size(message_prefix_fields[-1])


def message_tag(message_prefix_fields: PrefixFields) -> MessageTag:
    """Return the tag of a message.

    The tag is taken from the decoded fields of the message's prefix, which precedes the payload.
    """
    return MessageTag(*message_prefix_fields[:4])


def build_message(message_prefix_fields: PrefixFields, payload: Buffer) -> Message:
    """Build a message from its payload and the decoded fields of its prefix."""
    return Message(MessageTag(*message_prefix_fields[:4]), payload, *message_prefix_fields[4:12])


def _unpack_prefix(encoded_prefix: Buffer | bytearray) -> PrefixFields | None:
    """Return the fields of a message prefix.

    Return None if the prefix does not have the fixed layout of this codec. Other software that writes such messages
    omits padding and zero values.
    """
    if len(encoded_prefix) < PREFIX_BYTES or _CONSTANT_BYTES_FORMAT.unpack_from(encoded_prefix) != _CONSTANT_BYTES:
        return None
    return _FIELDS_FORMAT.unpack_from(encoded_prefix)


def _decode_with_protobuf(encoded_message: bytes) -> Message:
    """Decode a `DataMessage` that was serialised by protobuf, not by this codec."""
    try:
        decoded = DataMessage.FromString(encoded_message)
    except DecodeError as error:
        raise ProtocolError(f"{len(encoded_message)} bytes are not a valid DataMessage: {error}") from error
    if not decoded.HasField("header"):
        raise ProtocolError("a DataMessage has no header")
    header = decoded.header
    return Message(
        MessageTag(header.step, header.kind, header.chunk, header.piece),
        decoded.payload,
        header.version,
        header.samples,
        header.link_start_s,
        header.link_end_s,
        header.update_s,
        header.pending_samples,
        header.waited_s,
        header.skips_wait,
    )


@lru_cache(maxsize=1024)
def _decode_payload_size(varint: bytes) -> int:
    """Return the payload length that is encoded as a varint of five bytes."""
    a, b, c, d, e = varint
    return a & 0x7F | (b & 0x7F) << 7 | (c & 0x7F) << 14 | (d & 0x7F) << 21 | e << 28


@lru_cache(maxsize=1024)  # vectors are split into pieces of few sizes
def _encode_payload_size(size_bytes: int) -> bytes:
    """Return a payload length as a varint that always has five bytes.

    Each byte has seven bits, the lowest first; the highest bit of all but the last byte says that more bytes follow.

    Raises:
        ProtocolError: the payload is longer than a varint of five bytes can state.
    """
    if size_bytes >> _MAX_SIZE_BITS:
        raise ProtocolError(f"a payload of {size_bytes} bytes exceeds the limit of {(1 << _MAX_SIZE_BITS) - 1} bytes")
    return bytes((*(size_bytes >> 7 * k & 0x7F | 0x80 for k in range(4)), size_bytes >> 28))
