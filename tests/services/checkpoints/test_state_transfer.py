"""Tests of the transfer of a state between nodes: what a damaged state causes at its receiver."""

import asyncio
import json
import struct
from typing import Any

import numpy as np
import pytest

from services.checkpoints.state_transfer import MAX_DESCRIPTION_BYTES, receive_state, send_state
from services.runtime.device import CpuDevice
from services.runtime.transport import Message, MessageTag
from services.schema.errors import ProtocolError

DEVICE = CpuDevice("a processor", "a test")
MAX_BYTES = 1000
ARRAYS: dict[str, Any] = {"params": np.arange(100.0), "empty": np.empty((0, 3), np.float32), "count": np.float64(3)}
ARRAY = {"dtype": "<f8", "shape": [2]}


class MessageStore:
    """A transport that keeps messages until they are received."""

    max_payload_bytes = 64

    def __init__(self) -> None:
        self.messages: dict[MessageTag, Message] = {}

    async def send(self, _target: str, message: Message) -> None:
        self.messages[message.tag] = message

    async def receive(self, _source: str, tag: MessageTag, buffer: memoryview | None = None) -> Message:
        return self.messages[tag]


def receive_from(store: Any) -> Any:
    return asyncio.run(receive_state(store, "worker-1", DEVICE, MAX_BYTES))


def store_description(document: bytes, size: bytes | None = None) -> MessageStore:
    """Return the messages of a sender that describes its state with this document."""
    store = MessageStore()
    tag = next(iter(store_state(None).messages))
    store.messages[tag] = Message(tag, struct.pack("<Q", len(document)) if size is None else size)
    for number, start in enumerate(range(0, max(1, len(document)), store.max_payload_bytes)):
        piece = document[start : start + store.max_payload_bytes]
        tag_of_piece = tag._replace(chunk=1, piece=number)
        store.messages[tag_of_piece] = Message(tag_of_piece, piece)
    return store


def store_state(state: Any) -> MessageStore:
    """Return the messages of a sender."""
    store: Any = MessageStore()
    asyncio.run(send_state(store, "worker-0", state, DEVICE))
    messages: MessageStore = store
    return messages


def test_receiver_gets_the_state_of_the_sender() -> None:
    number, received, nothing = receive_from(store_state((7, ARRAYS, None)))

    assert (number, nothing, list(received)) == (7, None, list(ARRAYS))
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(received[name], array)
        assert (received[name].dtype, received[name].shape) == (array.dtype, array.shape)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 10_000,
        b"[]",
        b"null",
        json.dumps({"structure": None}).encode(),
        *(
            json.dumps({"structure": structure, "arrays": arrays}).encode()
            for structure, arrays in (
                (None, None),
                (None, [["<f8", [2]]]),
                (None, [{**ARRAY, "dtype": "O"}]),
                (None, [{**ARRAY, "dtype": "<f9"}]),
                (None, [{**ARRAY, "shape": [-2]}]),
                (None, [{**ARRAY, "shape": [-2, -2]}]),
                (None, [{**ARRAY, "shape": ["a"]}]),
                (None, [{**ARRAY, "shape": [1] * 100}]),
                (None, [{**ARRAY, "shape": [0, 1 << 63]}]),
                ({"array": 0}, []),
                ({"record": ["Path", {}]}, []),
            )
        ),
    ],
)
def test_state_that_cannot_be_read_is_a_protocol_error(document: bytes) -> None:
    """Every other error would look like a defect of the receiver."""
    with pytest.raises(ProtocolError, match="worker-1 sent a state that can't be read"):
        receive_from(store_description(document))


def test_size_that_cannot_be_read_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="worker-1 sent a state that can't be read"):
        receive_from(store_description(b"{}", size=b"\0"))


def test_sizes_are_compared_with_limits_before_memory_is_allocated() -> None:
    """A receiver knows the size of its model, so no sender makes it allocate much more."""
    arrays = [{**ARRAY, "shape": [63]}, {**ARRAY, "shape": [63]}]
    too_large = json.dumps({"structure": None, "arrays": arrays}).encode()
    with pytest.raises(ProtocolError, match=r"a state of 1,008 bytes; 1,000 are allowed"):
        receive_from(store_description(too_large))

    with pytest.raises(ProtocolError, match="16,777,217 bytes; 16,777,216 are allowed"):
        receive_from(store_description(b"", size=struct.pack("<Q", MAX_DESCRIPTION_BYTES + 1)))
