"""Bulk messages without protobuf's copies: the bytes are those of `Part` in data.proto, built and read by hand.

Protobuf copies a payload twice on each side. Here the header is protobuf and the payload is joined behind it once; on
receipt it is a view of the received buffer (`make bench` measures both).
"""

from collections.abc import Iterator

from google.protobuf.message import DecodeError

from services.errors import ProtocolError
from services.transport.base import Message, Tag
from services.wire.data_pb2 import Header

_HEADER_KEY = 0x0A  # field 1, length-delimited
_DATA_KEY = 0x7A  # field 15, length-delimited
_PREFIX_BYTES = 2  # key and length of the header, which is shorter than 128 bytes
_MORE = 0x80  # a varint goes on while this bit is set


def encode(message: Message) -> bytes:
    """The serialised `Part` of a message; one copy of the payload."""
    header = Header(
        step=message.tag.step,
        stage=message.tag.stage,
        chunk=message.tag.chunk,
        piece=message.tag.piece,
        version=message.version,
        samples=message.samples,
        sent_at=message.sent_at,
        passed_at=message.passed_at,
        update_s=message.update_s,
        underway=message.underway,
    ).SerializeToString()
    payload = memoryview(message.data).cast("B")
    return b"".join(
        (bytes((_HEADER_KEY, len(header))), header, bytes((_DATA_KEY, *_varint(payload.nbytes))), payload),
    )


def decode(part: bytes) -> Message:
    """The message in a serialised `Part`; its data is a view of `part`.

    Raises:
        ProtocolError: these bytes are not one.
    """
    try:
        return _decode(memoryview(part))
    except (IndexError, DecodeError) as error:
        raise ProtocolError(f"{len(part)} bytes are not a part: {error}") from error


def _decode(view: memoryview) -> Message:
    if len(view) < _PREFIX_BYTES or view[0] != _HEADER_KEY:
        raise ProtocolError("a part does not begin with its header")
    start = _PREFIX_BYTES + view[1]
    header = Header.FromString(bytes(view[_PREFIX_BYTES:start]))
    if view[start] != _DATA_KEY:
        raise ProtocolError("a part's header is not followed by its data")
    length, start = _read_varint(view, start + 1)
    if length != len(view) - start:
        raise ProtocolError(f"a part announces {length} bytes and holds {len(view) - start}")
    return Message(
        tag=Tag(header.step, header.stage, header.chunk, header.piece),
        data=view[start:],
        version=header.version,
        samples=header.samples,
        sent_at=header.sent_at,
        passed_at=header.passed_at,
        update_s=header.update_s,
        underway=header.underway,
    )


def _varint(value: int) -> Iterator[int]:
    """Seven bits per byte, the lowest first."""
    while value >= _MORE:
        yield value & (_MORE - 1) | _MORE
        value >>= 7
    yield value


def _read_varint(view: memoryview, start: int) -> tuple[int, int]:
    """The number at `start` and the index behind it."""
    value = shift = 0
    while True:
        byte = view[start]
        start += 1
        value |= (byte & (_MORE - 1)) << shift
        if byte < _MORE:
            return value, start
        shift += 7
