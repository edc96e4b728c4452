"""Vectors as messages: cut into pieces that a transport likes to carry, and put together again."""

from collections.abc import Iterator

import numpy as np

from services.runtime.transport import Message, Transport
from services.schema.arrays import HostArray


def pieces(vector: HostArray, piece_bytes: int) -> Iterator[HostArray]:
    """Views of at most `piece_bytes` that cover `vector`, shape (n,), in order."""
    length = max(1, piece_bytes // vector.itemsize)
    return (vector[start : start + length] for start in range(0, vector.size, length))


def messages(first: Message, vector: HostArray, piece_bytes: int) -> Iterator[Message]:
    """The pieces of `vector`, numbered from 0 and otherwise like `first`; an empty one as one piece."""
    if vector.size == 0:
        yield first
    for number, piece in enumerate(pieces(vector, piece_bytes)):
        yield first._replace(tag=first.tag._replace(piece=number), data=piece.data.cast("B"))


async def send_vector(transport: Transport, to: str, first: Message, vector: HostArray) -> None:
    """Send `vector` piece by piece."""
    for message in messages(first, vector, transport.piece_bytes):
        await transport.send(to, message)


async def recv_rest(transport: Transport, source: str, first: Message, out: HostArray) -> None:
    """Fill `out` with a vector whose first piece has been received."""
    for number, piece in enumerate(pieces(out, transport.piece_bytes)):
        room, tag = piece.data.cast("B"), first.tag._replace(piece=number)
        message = first if number == 0 else await transport.recv(source, tag, into=room)
        if message.data is not room:
            piece[:] = np.frombuffer(message.data, piece.dtype)
