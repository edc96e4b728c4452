"""Transfer of vectors as messages.

A vector is split into pieces that fit a transport, and reassembled at the receiver.
"""

from collections.abc import Iterator

import numpy as np

from services.runtime.transport import Message, Transport
from services.schema.arrays import HostArray


def split_vector(vector: HostArray, max_piece_bytes: float) -> Iterator[HostArray]:
    """Yield the pieces of a vector, in order, as views.

    The pieces have at most `max_piece_bytes` and cover `vector`, shape (n,).
    """
    length = max(1, int(max_piece_bytes // vector.itemsize))
    return (vector[start : start + length] for start in range(0, vector.size, length))


def make_vector_messages(message_template: Message, vector: HostArray, max_piece_bytes: float) -> Iterator[Message]:
    """Yield one message for each piece of a vector.

    The pieces of `vector` are numbered from 0 on. The rest of a message is as in `message_template`. An empty vector is
    sent as one message without payload.
    """
    if vector.size == 0:
        yield message_template
    for number, piece in enumerate(split_vector(vector, max_piece_bytes)):
        yield message_template._replace(tag=message_template.tag._replace(piece=number), data=piece.data.cast("B"))


async def send_vector(transport: Transport, target: str, message_template: Message, vector: HostArray) -> None:
    """Send `vector` to the node `target` as several messages, made from `message_template`."""
    for message in make_vector_messages(message_template, vector, transport.max_payload_bytes):
        await transport.send(target, message)


async def receive_remaining_pieces(transport: Transport, source: str, first_piece: Message, vector: HostArray) -> None:
    """Receive the pieces of a vector after its first piece, and write them into an array.

    The first piece is `first_piece`; all pieces, the first one included, are written into `vector`.
    """
    for number, piece in enumerate(split_vector(vector, transport.max_payload_bytes)):
        buffer, tag = piece.data.cast("B"), first_piece.tag._replace(piece=number)
        message = first_piece if number == 0 else await transport.receive(source, tag, buffer=buffer)
        if message.data is not buffer:
            piece[:] = np.frombuffer(message.data, piece.dtype)
