"""Functions of the namespace of guarded arrays: those that CuPy has, computed by NumPy."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from guarded_arrays.cupy_record import ARRAY_MEMBERS, FUNCTIONS, UFUNCS, check_arguments
from guarded_arrays.guarded_array import GuardedArray, refuse_unsupported_call, to_device_result, to_operand, to_values
from guarded_arrays.guarded_generator import default_rng

SUBMODULES = ("fft", "lib", "lib.stride_tricks", "linalg", "random")
INTEGER_AND_FLOAT_TYPES = ("int32", "int64", "uint32", "uint64", "float32", "float64")
SCATTER_TYPES = {  # ufunc -> data types that its method `at` supports
    "add": (*INTEGER_AND_FLOAT_TYPES, "float16"),
    "subtract": ("int32", "uint32"),
    "maximum": INTEGER_AND_FLOAT_TYPES,
    "minimum": INTEGER_AND_FLOAT_TYPES,
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), ("int32", "int64", "uint32", "uint64")),
}
REDUCIBLE_UFUNCS = {"add", "multiply"}
UFUNC_METHODS = {
    "reduce": "array, axis=0, dtype=None, out=None, keepdims=None",
    "accumulate": "array, axis=0, dtype=None, out=None",
    "reduceat": "array, indices, axis=0, dtype=None, out=None",
}
EXPLICIT_COPIES = {"array", "asarray"}  # of constants of a layer or an objective, which have no device
PLAIN_OBJECTS = {"dtype", "finfo", "iinfo"}  # the same in NumPy and CuPy


@cache
def find_function(path: str) -> Any:
    """Return a member of the namespace by its dotted name; raise AttributeError if CuPy has no such member."""
    if path in SUBMODULES:
        return Submodule(path)
    if path not in FUNCTIONS:
        raise AttributeError(f"module 'cupy' has no attribute {path!r}")
    if path == "ndarray":
        return GuardedArray
    if path == "random.default_rng":
        return default_rng
    if path.startswith("random."):
        raise AttributeError(f"{path} draws from a global state, so runs do not repeat; use random.default_rng(seed)")
    value = _find_in_numpy(path)
    if FUNCTIONS[path] is None:
        return _as_plain_object(path, value)
    return GuardedUfunc(path, value) if path in UFUNCS else _guard_function(path, FUNCTIONS[path] or "", value)


@dataclass(frozen=True)
class Submodule:
    """A module inside the namespace, such as `linalg`."""

    path: str

    def __getattr__(self, name: str) -> Any:
        return find_function(f"{self.path}.{name}")


def _find_in_numpy(path: str) -> Any:
    value: Any = np
    for name in path.split("."):
        value = getattr(value, name)  # AttributeError: NumPy lacks it, so code for both may not use it
    return value


def _as_plain_object(path: str, value: Any) -> Any:
    """Return a data type or a constant."""
    is_plain = value is None or isinstance(value, float) or (isinstance(value, type) and issubclass(value, np.generic))
    if is_plain or path in PLAIN_OBJECTS:
        return value
    raise NotImplementedError(f"guarded arrays have no {path!r}, which no code has needed")


def _guard_function(path: str, parameters: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def guarded_function(*args: Any, **kwargs: Any) -> Any:
        check_arguments(path, parameters, args, kwargs)
        if path in EXPLICIT_COPIES and args and isinstance(args[0], np.ndarray):
            args = (GuardedArray(args[0].copy()), *args[1:])
        if path in ARRAY_MEMBERS and args and not isinstance(args[0], GuardedArray):
            raise TypeError(f"cupy.{path} needs an array, not {type(args[0])}")
        refuse_unsupported_call(path, *args[1:], *kwargs.values())
        return call_numpy(function, args, kwargs)

    return guarded_function


def call_numpy(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function of NumPy with the values of guarded arrays, and return its result as guarded arrays."""
    out = kwargs.get("out")
    result = function(*to_values(args), **{key: to_values(value) for key, value in kwargs.items()})
    return out if isinstance(out, GuardedArray) else to_device_result(result)


@dataclass(frozen=True)
class GuardedUfunc:
    """An element-wise function; its operands are arrays and numbers, not lists."""

    name: str
    function: np.ufunc

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        check_arguments(self.name, FUNCTIONS[self.name] or "", args, kwargs)
        for operand in args:
            to_operand(operand)
        return call_numpy(self.function, args, kwargs)

    def at(self, a: GuardedArray, indices: Any, b: Any = None) -> None:
        if a.dtype.name not in SCATTER_TYPES.get(self.name, ()):
            raise TypeError(f"cupy.{self.name}.at does not support {a.dtype}")
        indices = tuple(to_values(part) for part in indices) if isinstance(indices, tuple) else to_values(indices)
        self.function.at(a._values, indices, to_operand(b))

    def reduce(self, array: GuardedArray, *args: Any, **kwargs: Any) -> Any:
        return self._call_method("reduce", REDUCIBLE_UFUNCS, array, *args, **kwargs)

    def accumulate(self, array: GuardedArray, *args: Any, **kwargs: Any) -> Any:
        return self._call_method("accumulate", REDUCIBLE_UFUNCS, array, *args, **kwargs)

    def reduceat(self, array: GuardedArray, *args: Any, **kwargs: Any) -> Any:
        return self._call_method("reduceat", {"add"}, array, *args, **kwargs)

    def outer(self, a: GuardedArray, b: GuardedArray, **kwargs: Any) -> Any:
        return call_numpy(self.function.outer, (a, b), kwargs)

    def _call_method(self, method: str, supported_ufuncs: set[str], *args: Any, **kwargs: Any) -> Any:
        if self.name not in supported_ufuncs:
            raise NotImplementedError(f"`{self.name}.{method}` is not supported yet")  # the words of CuPy's own error
        check_arguments(f"{self.name}.{method}", UFUNC_METHODS[method], args, kwargs)
        return call_numpy(getattr(self.function, method), args, kwargs)
