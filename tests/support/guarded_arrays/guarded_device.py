"""Compute device that stores guarded arrays."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from guarded_arrays.guarded_array import GuardedArray
from services.runtime.device import ComputeDevice
from services.schema.arrays import Array, HostArray


@dataclass(frozen=True)
class GuardedDevice(ComputeDevice):
    """Compute device that refuses what a GPU under CuPy refuses. Arrays on it share no memory with the host."""

    name: ClassVar[str] = "guarded"
    has_own_memory: ClassVar[bool] = True
    description: str = "NumPy with the limits of CuPy"
    reason: str = "a test has chosen it"

    def to_device(self, array: Array) -> GuardedArray:
        return array if isinstance(array, GuardedArray) else GuardedArray(np.array(array))

    def to_host(self, array: Array) -> HostArray:
        return array._values.copy("C") if isinstance(array, GuardedArray) else np.asarray(array)

    def synchronize(self) -> None:
        """Return at once: the arrays are computed when a function returns."""
