"""Arrays that refuse what CuPy's arrays refuse, so that tests find such code without a GPU.

The package is the namespace of the arrays, as `cupy` is: `array_namespace(array)` returns it, and it has the functions
that CuPy has, with the same parameters (`cupy_functions.json`). NumPy computes the results.
"""

from typing import Any

from guarded_arrays import namespace
from guarded_arrays.guarded_array import GuardedArray
from guarded_arrays.guarded_device import GuardedDevice

__all__ = ["GuardedArray", "GuardedDevice"]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return namespace.find_function(name)
