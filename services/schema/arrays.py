"""Array types of NumPy and CuPy, and a function that returns the module of an array."""

import sys
from typing import Any, TypeAlias

import numpy.typing as npt

Array: TypeAlias = Any  # numpy.ndarray or cupy.ndarray: they have one interface and no common base class
Vector: TypeAlias = Any  # an Array of shape (n,)
HostArray: TypeAlias = npt.NDArray[Any]  # a NumPy array, in the host's memory


def array_namespace(array: Array) -> Any:
    """Return the module of the array, `numpy` or `cupy`.

    Code that calls functions of this module runs on both.
    """
    return sys.modules[type(array).__module__.partition(".")[0]]
