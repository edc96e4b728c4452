"""Tests of state trees: every bit survives, and nothing but known types is stored or read."""

import asyncio
import json
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from guarded_arrays import GuardedArray, GuardedDevice
from hypothesis import given
from state_trees import describe_bits, states

from services.checkpoints.state_classes import STATE_CLASSES
from services.checkpoints.state_tree import (
    EncodedState,
    InvalidStateTree,
    UnstorableState,
    decode_state,
    encode_state,
)
from services.compressors.wrappers.error_feedback import ErrorFeedbackState
from services.learning.optimisers import OptimiserState
from services.strategies.local_training.diloco.worker import RunningExchange


class UnknownRecord(NamedTuple):
    value: int


@given(state=states)
def test_every_bit_of_a_state_survives_a_round_trip(state: Any) -> None:
    """A restored run continues with the same bits only if nothing is rounded or changes its type."""
    structure, arrays = encode_state(state)

    decoded = decode_state(EncodedState(json.loads(json.dumps(structure, allow_nan=False)), arrays))

    assert describe_bits(decoded) == describe_bits(state)


def test_an_array_that_occurs_twice_is_stored_once_and_is_one_array_again() -> None:
    """Adam begins with one vector of zeros for both moments, and local SGD with parameters equal to the common ones."""
    vector = np.arange(3.0)

    encoded = encode_state(OptimiserState(0, (vector, vector)))
    first, second = decode_state(encoded).slots

    assert len(encoded.arrays) == 1
    assert first is second


def test_arrays_that_are_not_contiguous_are_stored_as_contiguous_ones() -> None:
    """Files have the entries in C order."""
    matrix = np.arange(6.0).reshape(2, 3).T

    encoded = encode_state([matrix, matrix[::-1]])

    assert all(array.flags.c_contiguous for array in encoded.arrays)
    assert [array.tolist() for array in decode_state(encoded)] == [matrix.tolist(), matrix[::-1].tolist()]


def test_arrays_of_a_device_return_to_the_device() -> None:
    """The optimiser's state is on the device, and the factors of a low-rank sum are on the host."""
    device, vector = GuardedDevice(), np.arange(3.0)
    state = ErrorFeedbackState(device.to_device(vector), (vector,))

    encoded = encode_state(state, device.to_host)
    decoded = decode_state(encoded, device.to_device)

    assert isinstance(decoded.residual, GuardedArray)
    assert type(decoded.inner_state[0]) is np.ndarray
    assert device.to_host(decoded.residual).tobytes() == vector.tobytes()


async def _make_running_exchange() -> RunningExchange:
    task = asyncio.create_task(asyncio.sleep(0))
    await task
    return RunningExchange(task, 0, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": (1, UnknownRecord(2))}, r"^state\['a'\]\[1\] has the type .*UnknownRecord, which can't be stored"),
        (asyncio.run(_make_running_exchange()), "RunningExchange, which can't be stored"),
        (ErrorFeedbackState(None, {1, 2}), r"^state\.inner_state has the type builtins\.set"),
        ({True: 1}, "has the key True; keys must be of the types str or int"),
        ({(1,): 1}, r"has the key \(1,\)"),
        (np.array([object()]), "has the data type object"),
        (np.array(["text"]), "has the data type <U4"),
        (np.arange(2, dtype=">i4"), "has the data type >i4"),
        (np.ma.masked_array([1, 2], [True, False]), "MaskedArray, which can't be stored"),
        (np.random.default_rng(0), "Generator, which can't be stored"),
        (b"bytes", "bytes, which can't be stored"),
        ("\ud800", "half of a surrogate pair"),
        (lambda: None, "function, which can't be stored"),
    ],
)
def test_value_of_another_type_is_an_error_with_its_path(state: Any, message: str) -> None:
    """A value that is left out would be lost silently."""
    with pytest.raises(UnstorableState, match=message):
        encode_state(state)


def test_state_that_contains_itself_is_an_error() -> None:
    """It would be encoded for ever."""
    state: list[Any] = []
    state.append(state)

    with pytest.raises(UnstorableState, match="nested deeper than 32 levels"):
        encode_state(state)


@pytest.mark.parametrize(
    ("structure", "message"),
    [
        ({"record": ["Popen", {"args": "sh"}]}, "unknown class of records: 'Popen'"),
        ({"record": ["OptimiserState", {"update_count": 1}]}, "fields .'update_count'. in place of"),
        ({"record": ["OptimiserState", {"update_count": 1, "slots": None, "more": 1}]}, "fields .*more"),
        ({"record": ["OptimiserState"]}, "not the name of a class with its fields"),
        ({"record": {}}, "is not a list"),
        ({"set": [1]}, "unknown kind of value: 'set'"),
        ({"tuple": 3}, "is not a list"),
        ({"tuple": [1], "list": [1]}, "has the keys"),
        ({}, "has the keys"),
        ([1], "a list is not stored as a value"),
        (1.5, "a float is not stored as a value"),
        ({"float": "00"}, "not the digits of a number"),
        ({"float": "zz00000000000000"}, "not the digits of a number"),
        ({"int": 5}, "not the digits of a number"),
        ({"int": "x"}, "not the digits of a number"),
        ({"array": 1}, "no array with the index 1"),
        ({"array": -1}, "no array with the index -1"),
        ({"array": True}, "no array with the index True"),
        ({"scalar": 0}, "is not a scalar"),
        ({"dict": [[1]]}, "not a key with a value"),
        ({"dict": [[None, 1]]}, "key of the type NoneType"),
        (None, "1 of 1 arrays are not part of the structure"),
    ],
)
def test_structure_that_was_not_encoded_is_an_error(structure: Any, message: str) -> None:
    """A file may be from another version; names in it never import a class."""
    with pytest.raises(InvalidStateTree, match=message):
        decode_state(EncodedState(structure, (np.arange(2.0),)))


def test_deep_structure_is_an_error_before_the_stack_overflows() -> None:
    """Python would end with RecursionError."""
    structure: Any = None
    for _ in range(500):
        structure = {"list": [structure]}

    with pytest.raises(InvalidStateTree, match="more than 32 levels"):
        decode_state(EncodedState(structure, ()))


def test_all_classes_of_records_have_different_names_and_can_be_made_from_their_fields() -> None:
    """A file has only the name of a class and the values of its fields."""
    assert len({cls.__name__ for cls in STATE_CLASSES}) == len(STATE_CLASSES)
    for cls in STATE_CLASSES:
        assert all(field.init for field in fields(cls)) if is_dataclass(cls) else issubclass(cls, tuple)
