"""Conversion between the state of a node and a JSON structure with a list of arrays, bit for bit and without pickle.

A state consists of records (named tuples and frozen dataclasses), tuples, lists, dicts with str or int keys, arrays of
NumPy or CuPy, scalars of NumPy, int, float, bool, str and None. In the structure,

- None, booleans, strings and whole numbers of up to 64 bits are JSON values;
- all other values are JSON objects with one key for the kind of the value, such as {"tuple": [1, 2]}. A float is its
  eight bytes in hexadecimal, so infinite values and every NaN keep their bits. An array is its index in the list.

An array that a state contains several times is stored once, and is one array again after decoding.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from pydantic import JsonValue

from services.checkpoints.state_classes import STATE_CLASSES, StateClass
from services.schema.arrays import Array, HostArray

State: TypeAlias = Any  # of a node, see above
# NumPy's codes of the data types that can be stored; numbers are little-endian.
STORABLE_DTYPES = frozenset(
    ["|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16"]
)
PLAIN_TYPES = (bool, int, float, str)
FLOAT_DIGITS = 16  # hexadecimal
INT64 = np.iinfo(np.int64)
MAX_DEPTH = 32  # of nested values; states of algorithms have fewer


class InvalidStateTree(ValueError):
    """Error because a structure is not one that `encode_state` has written."""


class UnstorableState(TypeError):
    """Error because a state contains a value that can't be stored. The message has the path of the value."""


class EncodedState(NamedTuple):
    """A state as a structure without arrays, and its arrays."""

    structure: JsonValue
    arrays: tuple[HostArray, ...]  # contiguous; they may share memory with the state


def encode_state(
    state: State, to_host: Callable[[Array], HostArray] = np.asarray, classes: Sequence[StateClass] = STATE_CLASSES
) -> EncodedState:
    """Return a state as a structure with a list of arrays.

    Args:
        state: the state.
        to_host: copies an array to host memory; of the device on which the arrays are.
        classes: classes of the records that the state may contain.

    Raises:
        UnstorableState: a value is of another type, for example a task of an exchange that is still running.
    """
    encoder = _StateEncoder(to_host, frozenset(classes))
    structure = encoder.encode(state, "state", MAX_DEPTH)
    return EncodedState(structure, tuple(encoder.host_arrays))


def decode_state(
    encoded_state: EncodedState,
    to_device: Callable[[HostArray], Array] = np.asarray,
    classes: Sequence[StateClass] = STATE_CLASSES,
) -> State:
    """Return the state of which `encode_state` has made `encoded_state`.

    Args:
        encoded_state: the structure and its arrays.
        to_device: copies an array to the device; called for arrays that were on a device with its own memory.
        classes: classes of the records that the state may contain.

    Raises:
        InvalidStateTree: the structure is not one that `encode_state` has written, or the fields of a class differ.
    """
    decoder = _StateDecoder(encoded_state.arrays, to_device, {cls.__name__: cls for cls in classes})
    state = decoder.decode(encoded_state.structure, MAX_DEPTH)
    if len(decoder.used_indices) != len(encoded_state.arrays):
        unused = len(encoded_state.arrays) - len(decoder.used_indices)
        raise InvalidStateTree(f"{unused} of {len(encoded_state.arrays)} arrays are not part of the structure")
    return state


def list_field_names(state_class: StateClass) -> tuple[str, ...]:
    """Return the names of the fields of a named tuple or a dataclass."""
    if is_dataclass(state_class):
        return tuple(field.name for field in fields(state_class))
    names: tuple[str, ...] = state_class._fields
    return names


class _StateEncoder:
    """Encoder of one state, which collects its arrays."""

    def __init__(self, to_host: Callable[[Array], HostArray], classes: frozenset[StateClass]) -> None:
        self.host_arrays: list[HostArray] = []
        self._to_host = to_host
        self._classes = classes
        # By id of an array: the array itself, so that no other array gets this id, and its index.
        self._known_arrays: dict[int, tuple[Array, int]] = {}

    def encode(self, value: State, path: str, depth: int) -> JsonValue:
        """Return the structure of a value, which may have `depth` levels."""
        if not depth:
            raise UnstorableState(f"{path} is nested deeper than {MAX_DEPTH} levels")
        value_type = type(value)
        if value_type in self._classes:
            names = list_field_names(value_type)
            encoded = {name: self.encode(getattr(value, name), f"{path}.{name}", depth - 1) for name in names}
            return {"record": [value_type.__name__, encoded]}
        if value_type in (tuple, list):
            return {value_type.__name__: [self.encode(v, f"{path}[{i}]", depth - 1) for i, v in enumerate(value)]}
        if value_type is dict:
            return {"dict": [self._encode_item(key, value[key], path, depth - 1) for key in value]}
        if value is None or value_type in PLAIN_TYPES:
            return _encode_plain_value(value, path)
        return self._encode_array(value, path)

    def _encode_item(self, key: Any, value: State, path: str, depth: int) -> JsonValue:
        """Return the structure of one item of a dict."""
        if type(key) not in (int, str):
            raise UnstorableState(f"{path} has the key {key!r}; keys must be of the types str or int")
        return [self.encode(key, path, depth), self.encode(value, f"{path}[{key!r}]", depth)]

    def _encode_array(self, value: State, path: str) -> JsonValue:
        """Return the structure of an array or a scalar of NumPy."""
        if isinstance(value, np.generic):
            return {"scalar": self._add_array(np.asarray(value), path)}
        if type(value) is np.ndarray:
            return {"array": self._add_array(value, path)}
        if _is_device_array(value):
            return {"device_array": self._add_array(value, path)}
        raise UnstorableState(
            f"{path} has the type {type(value).__module__}.{type(value).__qualname__}, which can't be stored; a record "
            "must be in STATE_CLASSES of services/checkpoints/state_classes.py"
        )

    def _add_array(self, array: Array, path: str) -> int:
        """Return the index of an array, which is added unless it is known."""
        if id(array) not in self._known_arrays:
            host_array = np.asarray(self._to_host(array), order="C")
            if host_array.dtype.str not in STORABLE_DTYPES:
                raise UnstorableState(f"{path} has the data type {array.dtype}, which can't be stored")
            self._known_arrays[id(array)] = array, len(self.host_arrays)
            self.host_arrays.append(host_array)
        return self._known_arrays[id(array)][1]


def _is_device_array(value: Any) -> bool:
    """Return whether a value is an array of another library than NumPy.

    Subclasses of NumPy's arrays, such as masked arrays, have more than their entries, so they can't be stored.
    """
    module = sys.modules.get(type(value).__module__.partition(".")[0])
    array_type = getattr(module, "ndarray", None)
    return isinstance(array_type, type) and array_type is not np.ndarray and isinstance(value, array_type)


class _StateDecoder:
    """Decoder of one structure, which takes the arrays from a list."""

    def __init__(
        self, arrays: Sequence[HostArray], to_device: Callable[[HostArray], Array], classes: dict[str, StateClass]
    ) -> None:
        self.used_indices: set[int] = set()
        self._arrays = arrays
        self._to_device = to_device
        self._classes = classes
        self._device_arrays: dict[int, Array] = {}  # by index

    def decode(self, structure: JsonValue, depth: int) -> State:
        """Return the value of a structure, which may have `depth` levels."""
        if not depth:
            raise InvalidStateTree(f"the structure has more than {MAX_DEPTH} levels")
        if not isinstance(structure, dict):
            return _check_plain_structure(structure)
        if len(structure) != 1:
            raise InvalidStateTree(f"a value has the keys {sorted(structure)} in place of one for its kind")
        ((kind, content),) = structure.items()
        if kind in ("int", "float"):
            return _decode_number(kind, content)
        if kind in ("array", "device_array", "scalar"):
            return self._decode_array(kind, content)
        return self._decode_container(kind, content, depth - 1)

    def _decode_container(self, kind: str, content: JsonValue, depth: int) -> State:
        """Return a tuple, a list, a dict or a record, whose items may have `depth` levels."""
        if not isinstance(content, list):
            raise InvalidStateTree(f"the content of {kind!r} is not a list")
        match kind:
            case "tuple":
                return tuple(self.decode(item, depth) for item in content)
            case "list":
                return [self.decode(item, depth) for item in content]
            case "dict":
                return dict(self._decode_item(item, depth) for item in content)
            case "record":
                return self._decode_record(content, depth)
        raise InvalidStateTree(f"unknown kind of value: {kind!r}")

    def _decode_item(self, item: JsonValue, depth: int) -> tuple[Any, State]:
        """Return the key and the value of one item of a dict."""
        if not isinstance(item, list) or len(item) != len(("key", "value")):
            raise InvalidStateTree("an item of a dict is not a key with a value")
        key = self.decode(item[0], depth)
        if type(key) not in (int, str):
            raise InvalidStateTree(f"a dict has a key of the type {type(key).__name__}")
        return key, self.decode(item[1], depth)

    def _decode_record(self, content: list[JsonValue], depth: int) -> State:
        """Return a record, given the name of its class and its fields."""
        match content:
            case [str(name), dict(encoded_fields)] if name in self._classes:
                state_class = self._classes[name]
            case [str(name), dict()]:
                raise InvalidStateTree(f"unknown class of records: {name!r}")
            case _:
                raise InvalidStateTree("a record is not the name of a class with its fields")
        names = list_field_names(state_class)
        if set(encoded_fields) != set(names):
            raise InvalidStateTree(f"{name} has the fields {sorted(encoded_fields)} in place of {sorted(names)}")
        return state_class(**{field: self.decode(encoded_fields[field], depth) for field in names})

    def _decode_array(self, kind: str, index: JsonValue) -> Array:
        """Return the array or the scalar at an index."""
        if type(index) is not int or not 0 <= index < len(self._arrays):
            raise InvalidStateTree(f"there is no array with the index {index!r}")
        self.used_indices.add(index)
        array = self._arrays[index]
        if kind == "scalar":
            if array.shape:
                raise InvalidStateTree(f"the array with the index {index} is not a scalar")
            return array[()]
        if kind == "array":
            return array
        if index not in self._device_arrays:
            self._device_arrays[index] = self._to_device(array)
        return self._device_arrays[index]


def _encode_plain_value(value: Any, path: str) -> JsonValue:
    """Return the structure of a plain value."""
    if isinstance(value, float):
        return {"float": np.float64(value).tobytes().hex()}
    if isinstance(value, int) and not INT64.min <= value <= INT64.max:
        return {"int": hex(value)}
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise UnstorableState(f"{path} has half of a surrogate pair, which JSON can't store")
    plain_value: JsonValue = value
    return plain_value


def _check_plain_structure(structure: JsonValue) -> bool | int | str | None:
    """Return a plain value that is stored as it is."""
    if isinstance(structure, list | float | dict):
        raise InvalidStateTree(f"a {type(structure).__name__} is not stored as a value of JSON")
    return structure


def _decode_number(kind: str, content: JsonValue) -> float:
    """Return a float, or a whole number that needs more than 64 bits, from its hexadecimal digits."""
    try:
        if isinstance(content, str) and kind == "int":
            return int(content, 16)
        if isinstance(content, str) and len(content) == FLOAT_DIGITS:
            return float(np.frombuffer(bytes.fromhex(content), "<f8")[0])
    except ValueError:
        pass
    raise InvalidStateTree(f"{content!r} are not the digits of a number of the kind {kind}")
