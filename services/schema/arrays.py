"""Array types, and the module that computes with an array: NumPy or CuPy."""

import sys
from typing import Any, TypeAlias

import numpy.typing as npt

Array: TypeAlias = Any  # numpy.ndarray or cupy.ndarray: one interface, no common base class
Vector: TypeAlias = Any  # an Array of shape (n,)
HostArray: TypeAlias = npt.NDArray[Any]  # in the host's memory


def namespace(x: Array) -> Any:
    """Return the module that `x` comes from, numpy or cupy, so that compute is written once for both."""
    return sys.modules[type(x).__module__.partition(".")[0]]
