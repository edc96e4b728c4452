"""The array type: a NumPy array that refuses what an array of CuPy refuses."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from guarded_arrays.cupy_record import ARRAY_MEMBERS, check_arguments

SCALARS = (bool, int, float, complex, np.generic)
NUMERIC_KINDS = "biufc"  # of data types; CuPy has no strings, objects and dates
BINARY_OPERATORS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "pow": np.power,
    "divmod": np.divmod,
    "matmul": np.matmul,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
NO_IN_PLACE_FORM = {"divmod", "matmul"}  # Python computes `x @= y` as `x = x @ y`
COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
UNARY_OPERATORS = {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}
HOST_COPIES = {"get", "set", "tobytes", "tolist", "tofile", "dump", "dumps", "data"}
PROPERTIES = {"T", "mT", "real", "imag", "shape", "dtype", "ndim", "size", "itemsize", "nbytes", "strides"}


class GuardedArray:
    """A NumPy array that refuses what an array of CuPy refuses, and copies to the host other than by the device.

    It is stricter than CuPy in two points, which are rules of this project: NumPy functions never accept it, although
    CuPy replaces some of them by its own, and values of the host never become part of it unnoticed, although CuPy
    copies some. As in CuPy, arrays of the host are allowed as indices, and `asarray` copies them.
    """

    __slots__ = ("_values",)
    __array_ufunc__ = None  # NumPy's functions raise TypeError, and its operators call those of this class
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, values: np.ndarray) -> None:
        if values.dtype.kind not in NUMERIC_KINDS:
            raise ValueError(f"Unsupported dtype {values.dtype}")
        self._values = values

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed; use the device's to_host")

    def __array_function__(self, function: Callable[..., Any], *args: Any) -> Any:
        raise TypeError(f"numpy.{function.__name__} got a device array; use the function of array_namespace(array)")

    def __getattr__(self, name: str) -> Any:
        if name not in ARRAY_MEMBERS:
            raise AttributeError(f"arrays of CuPy have no attribute {name!r}")
        if name in HOST_COPIES:
            raise TypeError(f"{name!r} of an array copies to the host; use the device's to_host")
        if name in PROPERTIES:
            return to_device_result(getattr(self._values, name))
        parameters = ARRAY_MEMBERS[name]
        if parameters is None or not hasattr(self._values, name):
            raise NotImplementedError(f"guarded arrays have no {name!r}, which NumPy lacks or no code has needed")

        def method(*args: Any, **kwargs: Any) -> Any:
            check_arguments(f"ndarray.{name}", parameters, args, kwargs)
            refuse_unsupported_call(name, *args, *kwargs.values())
            host_args, host_kwargs = to_values(args), {key: to_values(value) for key, value in kwargs.items()}
            return to_device_result(getattr(self._values, name)(*host_args, **host_kwargs))

        return method

    def __getitem__(self, index: Any) -> "GuardedArray":
        return GuardedArray(np.asarray(self._values[to_index(index)]))

    def __setitem__(self, index: Any, value: Any) -> None:
        host_index, host_value = to_index(index), to_operand(value)
        self._values[host_index] = host_value
        if np.ndim(host_value) and not np.array_equal(
            self._values[host_index],
            np.broadcast_to(host_value, self._values[host_index].shape).astype(self._values.dtype),
            equal_nan=self._values.dtype.kind in "fc",
        ):
            raise ValueError("several values are stored at one index; which one CuPy keeps is undefined")

    def __iter__(self) -> Iterator["GuardedArray"]:
        if not self._values.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[row] for row in range(len(self._values)))

    def __len__(self) -> int:
        return len(self._values)

    def __bool__(self) -> bool:
        return bool(self._values)

    def __float__(self) -> float:
        return float(self._single_value())

    def __int__(self) -> int:
        return int(self._single_value())

    def __format__(self, format_spec: str) -> str:
        return format(self._single_value() if format_spec else self._values, format_spec)

    def __repr__(self) -> str:
        return f"guarded {self._values!r}"

    def _single_value(self) -> Any:
        if self._values.ndim:
            raise TypeError(f"an array of shape {self._values.shape} is not a number; use the device's to_host")
        return self._values[()]


def to_operand(value: Any) -> Any:
    """Return the values of an operand: a guarded array, or a number."""
    if isinstance(value, GuardedArray):
        return value._values
    if isinstance(value, SCALARS):
        return value
    raise TypeError(f"Unsupported type {type(value)}; use the device's to_device")


def to_values(value: Any) -> Any:
    """Return an argument of a function with guarded arrays replaced by their values; refuse arrays of the host."""
    if isinstance(value, GuardedArray):
        return value._values
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}; use the device's to_device")
    if type(value) in {list, tuple}:
        return type(value)(to_values(item) for item in value)
    return value


def to_index(index: Any) -> Any:
    """Return an index with guarded arrays replaced by their values; refuse more than one boolean array."""
    parts = tuple(
        part._values if isinstance(part, GuardedArray) else part
        for part in (index if isinstance(index, tuple) else (index,))
    )
    if sum(getattr(part, "dtype", None) == np.bool_ for part in parts) > 1:
        raise IndexError("CuPy allows one boolean array in an index")
    has_room = Ellipsis not in [part for part in parts if not isinstance(part, np.ndarray)]
    return (*parts, ...) if has_room else parts  # with an ellipsis, NumPy returns a view and never a number


def to_device_result(value: Any) -> Any:
    """Return the result of a function of NumPy with arrays and NumPy's numbers replaced by guarded arrays."""
    if isinstance(value, np.ndarray | np.generic):
        return GuardedArray(np.asarray(value))
    if isinstance(value, tuple) and any(isinstance(item, np.ndarray) for item in value):
        return tuple(map(to_device_result, value))
    if isinstance(value, list):
        return [to_device_result(item) for item in value]
    return value


def refuse_unsupported_call(name: str, *args: Any) -> None:
    """Raise an error for arguments that CuPy refuses although its function has such parameters."""
    if name == "repeat" and any(isinstance(arg, GuardedArray) for arg in args[:1]):
        raise ValueError("cupy.ndarray cannot be specified as `repeats` argument")


def _make_operator(function: Callable[..., Any], *, is_reflected: bool = False) -> Callable[..., Any]:
    def operator(self: GuardedArray, other: Any) -> Any:
        operands = (self._values, to_operand(other))
        return to_device_result(function(*(reversed(operands) if is_reflected else operands)))

    return operator


def _make_in_place_operator(function: Callable[..., Any]) -> Callable[..., Any]:
    def operator(self: GuardedArray, other: Any) -> GuardedArray:
        function(self._values, to_operand(other), out=self._values)
        return self

    return operator


def _make_unary_operator(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: to_device_result(function(self._values))


for _name, _function in BINARY_OPERATORS.items():
    setattr(GuardedArray, f"__{_name}__", _make_operator(_function))
    setattr(GuardedArray, f"__r{_name}__", _make_operator(_function, is_reflected=True))
    if _name not in NO_IN_PLACE_FORM:
        setattr(GuardedArray, f"__i{_name}__", _make_in_place_operator(_function))
for _name, _function in COMPARISONS.items():
    setattr(GuardedArray, f"__{_name}__", _make_operator(_function))
for _name, _function in UNARY_OPERATORS.items():
    setattr(GuardedArray, f"__{_name}__", _make_unary_operator(_function))
