"""Transfer of the state of a worker to another worker, over the data network."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from pydantic import JsonValue

from services.checkpoints.file_format import ArrayLayout
from services.checkpoints.state_tree import EncodedState, State, decode_state, encode_state
from services.runtime.device import ComputeDevice
from services.runtime.transport import Message, MessageKind, MessageTag, Transport
from services.runtime.vector_messages import receive_remaining_pieces, send_vector
from services.schema.arrays import HostArray
from services.schema.component import FrozenRecord
from services.schema.errors import ProtocolError

_SIZE_FORMAT = struct.Struct("<Q")
MAX_DESCRIPTION_BYTES = 16 << 20  # of the structure of a state, without its arrays


class StateDescription(FrozenRecord):
    """Structure of a state, and the arrays that follow it."""

    structure: JsonValue
    arrays: tuple[ArrayLayout, ...]

    @property
    def nbytes(self) -> int:
        """Size of all arrays in bytes."""
        return sum(array.nbytes for array in self.arrays)


async def send_state(transport: Transport, target: str, state: State, device: ComputeDevice) -> None:
    """Send a state to the node `target`.

    Args:
        transport: transport of this node.
        target: name of the receiving node.
        state: the state, of types that `encode_state` can store.
        device: device on which the arrays of the state are.
    """
    structure, arrays = encode_state(state, device.to_host)
    layouts = tuple(ArrayLayout(dtype=array.dtype.str, shape=array.shape) for array in arrays)
    document = StateDescription(structure=structure, arrays=layouts).model_dump_json()
    description = np.frombuffer(document.encode(), np.uint8)
    await transport.send(target, Message(_state_tag(0), _SIZE_FORMAT.pack(description.size)))
    for number, array in enumerate((description, *arrays), start=1):
        await send_vector(
            transport, target, Message(_state_tag(number)), np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        )


async def receive_state(transport: Transport, source: str, device: ComputeDevice, max_bytes: int) -> State:
    """Receive the state that the node `source` sends.

    Args:
        transport: transport of this node.
        source: name of the sending node.
        device: device for the arrays that were on a device with its own memory.
        max_bytes: size of all arrays that is accepted; no memory is allocated for more.

    Raises:
        ProtocolError: the state is too large, or is not one that `send_state` has sent.
        NetworkError: the state has not arrived in time.
    """
    size_message = await transport.receive(source, _state_tag(0))
    with _explain_unreadable_state(source):
        (size,) = _SIZE_FORMAT.unpack(size_message.data)
    if size > MAX_DESCRIPTION_BYTES:
        raise ProtocolError(f"{source} describes its state in {size:,} bytes; {MAX_DESCRIPTION_BYTES:,} are allowed")
    document = await _receive_bytes(transport, source, 1, size)
    with _explain_unreadable_state(source):
        description = StateDescription.model_validate_json(document.tobytes())
    if description.nbytes > max_bytes:
        raise ProtocolError(f"{source} sends a state of {description.nbytes:,} bytes; {max_bytes:,} are allowed")
    arrays = []
    for number, layout in enumerate(description.arrays, start=2):
        vector = await _receive_bytes(transport, source, number, layout.nbytes)
        arrays.append(vector.view(layout.dtype).reshape(layout.shape))
    with _explain_unreadable_state(source):
        return decode_state(EncodedState(description.structure, tuple(arrays)), device.to_device)


@contextmanager
def _explain_unreadable_state(source: str) -> Iterator[None]:
    """Replace an error about the content of a message by one that names its sender.

    Raises:
        ProtocolError: the body of the `with` block can't read what `source` has sent.
    """
    try:
        yield
    except (struct.error, ValueError) as error:  # those of pydantic and of `decode_state` are ValueErrors
        raise ProtocolError(f"{source} sent a state that can't be read: {error}") from error


async def _receive_bytes(transport: Transport, source: str, number: int, size: int) -> HostArray:
    vector = np.empty(size, np.uint8)
    first_piece = await transport.receive(source, _state_tag(number))
    await receive_remaining_pieces(transport, source, first_piece, vector)
    return vector


def _state_tag(number: int) -> MessageTag:
    return MessageTag(0, MessageKind.STATE, number)
