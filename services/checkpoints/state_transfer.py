"""Transfer of the state of a worker to another worker, over the data network."""

import json
import struct

import numpy as np

from services.checkpoints.state_tree import EncodedState, State, decode_state, encode_state
from services.runtime.device import ComputeDevice
from services.runtime.transport import Message, MessageKind, MessageTag, Transport
from services.runtime.vector_messages import receive_remaining_pieces, send_vector
from services.schema.arrays import HostArray
from services.schema.errors import ProtocolError

_SIZE_FORMAT = struct.Struct("<Q")
MAX_DESCRIPTION_BYTES = 16 << 20  # of the structure of a state, without its arrays
MAX_ARRAY_BYTES = 1 << 40


async def send_state(transport: Transport, target: str, state: State, device: ComputeDevice) -> None:
    """Send a state to the node `target`.

    Args:
        transport: transport of this node.
        target: name of the receiving node.
        state: the state, of types that `encode_state` can store.
        device: device on which the arrays of the state are.
    """
    structure, arrays = encode_state(state, device.to_host)
    shapes = [(array.dtype.str, array.shape) for array in arrays]
    description = np.frombuffer(json.dumps({"structure": structure, "arrays": shapes}).encode(), np.uint8)
    await transport.send(target, Message(_state_tag(0), _SIZE_FORMAT.pack(description.size)))
    for number, array in enumerate((description, *arrays), start=1):
        await send_vector(
            transport, target, Message(_state_tag(number)), np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        )


async def receive_state(transport: Transport, source: str, device: ComputeDevice) -> State:
    """Receive the state that the node `source` sends.

    Raises:
        ProtocolError: the sizes of the state exceed the limits.
        NetworkError: the state has not arrived in time.
    """
    size_message = await transport.receive(source, _state_tag(0))
    (size,) = _SIZE_FORMAT.unpack(size_message.data)
    if size > MAX_DESCRIPTION_BYTES:
        raise ProtocolError(f"{source} describes its state in {size:,} bytes; {MAX_DESCRIPTION_BYTES:,} are allowed")
    description = json.loads((await _receive_bytes(transport, source, 1, size)).tobytes())
    arrays = []
    for number, (dtype, shape) in enumerate(description["arrays"], start=2):
        size = int(np.prod(shape, dtype=np.float64)) * np.dtype(dtype).itemsize
        if size > MAX_ARRAY_BYTES:
            raise ProtocolError(f"{source} sends an array of {size:,} bytes; {MAX_ARRAY_BYTES:,} are allowed")
        arrays.append((await _receive_bytes(transport, source, number, size)).view(dtype).reshape(shape))
    return decode_state(EncodedState(description["structure"], tuple(arrays)), device.to_device)


async def _receive_bytes(transport: Transport, source: str, number: int, size: int) -> HostArray:
    vector = np.empty(size, np.uint8)
    first_piece = await transport.receive(source, _state_tag(number))
    await receive_remaining_pieces(transport, source, first_piece, vector)
    return vector


def _state_tag(number: int) -> MessageTag:
    return MessageTag(0, MessageKind.STATE, number)
