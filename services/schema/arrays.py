"""Array types of NumPy and CuPy, the library of an array, norms, and compute without warnings about divergence."""

import sys
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = Any  # numpy.ndarray or cupy.ndarray: they have one interface and no common base class
Vector: TypeAlias = Any  # an Array of shape (n,)
HostArray: TypeAlias = npt.NDArray[Any]  # a NumPy array, in the host's memory


def array_namespace(array: Array) -> Any:
    """Return the module, `numpy` or `cupy`, to which an array belongs.

    Code that calls functions of the returned module runs with both libraries.
    """
    return sys.modules[type(array).__module__.partition(".")[0]]


def euclidean_norm(vector: Vector) -> Array:
    """Return the Euclidean norm of a vector, a float64 of shape ().

    The sum has the same order on every host, whatever its number of BLAS threads, so all replicas get the same bits.
    """
    xp = array_namespace(vector)
    return xp.sqrt(xp.sum(vector * vector, dtype=xp.float64))


def without_divergence_warnings() -> AbstractContextManager[object]:
    """Return a context in which NumPy computes with infinite values and NaN without a warning.

    For compute on the parameters of a model that may have diverged. The logged losses show the divergence; NumPy would
    print a warning for each kind of operation to the standard error of the node.
    """
    return np.errstate(over="ignore", invalid="ignore", divide="ignore")
