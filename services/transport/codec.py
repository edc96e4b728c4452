"""Bulk messages without protobuf's copies: the bytes are those of `Part` in data.proto, built and read by hand.

Protobuf copies a payload twice on each side. Here everything before the payload is `PREFIX_BYTES` long, whatever it
says, and is packed at once; on receipt the payload is a view of the received buffer (`make bench` measures both). The
length of the prefix is a multiple of what arrays are aligned to: sums over payloads at odd addresses take 1.75 times as
long. Both data planes speak it: gRPC in one buffer per message, TCP as a stream of prefixes and payloads.
"""

import struct
from functools import lru_cache
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from services.runtime.transport import Buffer, Message, Tag
from services.schema.errors import ProtocolError
from services.wire.data_pb2 import Part

Values: TypeAlias = tuple[Any, ...]  # what a prefix says, to be handed on

PREFIX_BYTES = 96
_SIZE_BITS = 35  # of a payload's length: five bytes of a varint

# Key and value of the header as a whole, of its twelve fields, of the pad; then the key of the payload and its length.
_PREFIX = struct.Struct("<BB BQ BIBIBI BQBQ BdBdBd BQBfB? BBx B5s")
_FIXED = struct.Struct("<BB B8x B4xB4xB4x B8xB8x B8xB8xB8x B8xB4xBx BBx B5x")  # of the same bytes what never changes,
_VALUES = struct.Struct("<xx xQ xIxIxI xQxQ xdxdxd xQxfx? xxx x5s")  # and what does
_KEYS = (0x0A, 0x09, 0x15, 0x1D, 0x25, 0x29, 0x31, 0x39, 0x41, 0x49, 0x51, 0x5D, 0x60, 0x72, 0x7A)
_HEADER_BYTES, _PAD_BYTES = 85, 1
_AS_OURS = (_KEYS[0], _HEADER_BYTES, *_KEYS[1:14], _PAD_BYTES, _KEYS[14])


def encode(message: Message) -> bytes:
    """The serialised `Part` of a message; one copy of the payload, or none where it came in just this message."""
    begin = prefix(message)
    return _as_it_came(begin, message.data) or b"".join((begin, message.data))


def _as_it_came(begin: bytes, data: Buffer) -> bytes | None:
    """The part of which `decode` has made `data` a view, if it begins alike."""
    part = data.obj if isinstance(data, memoryview) else None
    if isinstance(part, bytes) and len(part) == PREFIX_BYTES + len(data) and part.startswith(begin):
        return part
    return None


def prefix(message: Message) -> bytes:
    """Everything of the serialised `Part` that comes before the payload, `PREFIX_BYTES` long."""
    whole, step, stage, chunk, piece, version, samples, sent, passed, update, underway, waited, alone, pad, data = _KEYS
    return _PREFIX.pack(
        *(whole, _HEADER_BYTES),
        *(step, message.tag.step, stage, message.tag.stage, chunk, message.tag.chunk, piece, message.tag.piece),
        *(version, message.version, samples, message.samples),
        *(sent, message.sent_at, passed, message.passed_at, update, message.update_s),
        *(underway, message.underway, waited, message.waited_s, alone, message.alone),
        *(pad, _PAD_BYTES, data, _length(message.size)),
    )


def decode(part: bytes) -> Message:
    """The message in a serialised `Part`; its data is a view of `part` when a node has written it.

    Raises:
        ProtocolError: these bytes are not one.
    """
    if (values := _values(part)) is None:
        return _by_protobuf(part)
    payload = memoryview(part)[PREFIX_BYTES:]
    if (size := size_of(values)) != payload.nbytes:
        raise ProtocolError(f"a part announces {size} bytes and holds {payload.nbytes}")
    return message_of(values, payload)


def parse(part: Buffer | bytearray) -> Values:
    """What a prefix says; `size_of` and `message_of` read it.

    Raises:
        ProtocolError: this is no prefix.
    """
    if (values := _values(part)) is None:
        raise ProtocolError("a message does not begin as one")
    return values


def size_of(values: Values) -> int:
    """Bytes of the payload that a prefix announces."""
    return _size(values[-1])


def tag_of(values: Values) -> Tag:
    """The name of the message."""
    return Tag(*values[:4])


def message_of(values: Values, payload: Buffer) -> Message:
    """The message of a prefix and of the payload behind it."""
    return Message(Tag(*values[:4]), payload, *values[4:12])


def _values(part: Buffer | bytearray) -> Values | None:
    """Tag, version and so on in their order; None when no node has written this: protobuf leaves pad and zeros away."""
    if len(part) < PREFIX_BYTES or _FIXED.unpack_from(part) != _AS_OURS:
        return None
    return _VALUES.unpack_from(part)


def _by_protobuf(part: bytes) -> Message:
    """What others write who have only the .proto file."""
    try:
        found = Part.FromString(part)
    except DecodeError as error:
        raise ProtocolError(f"{len(part)} bytes are not a part: {error}") from error
    if not found.HasField("header"):
        raise ProtocolError("a part has no header")
    header = found.header
    tag = Tag(header.step, header.stage, header.chunk, header.piece)
    told = header.update_s, header.underway, header.waited_s, header.alone
    return Message(tag, found.data, header.version, header.samples, header.sent_at, header.passed_at, *told)


@lru_cache(maxsize=1024)
def _size(length: bytes) -> int:
    """What `_length` has written."""
    a, b, c, d, e = length
    return a & 0x7F | (b & 0x7F) << 7 | (c & 0x7F) << 14 | (d & 0x7F) << 21 | e << 28


@lru_cache(maxsize=1024)  # vectors are cut into pieces of few sizes
def _length(size: int) -> bytes:
    """A varint that always has five bytes: seven bits in each, the lowest first; all but the last say that more come.

    Raises:
        ProtocolError: the payload is too long for that.
    """
    if size >> _SIZE_BITS:
        raise ProtocolError(f"a message of {size} bytes is longer than {(1 << _SIZE_BITS) - 1}")
    return bytes((*(size >> 7 * k & 0x7F | 0x80 for k in range(4)), size >> 28))
