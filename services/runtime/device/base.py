"""Base class of compute devices."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from services.schema.arrays import Array, HostArray, Vector


class VectorPart(NamedTuple):
    """Values of one contiguous range of a vector on a device."""

    start: int  # index of the first entry in the whole vector
    values: Vector


@dataclass(frozen=True)
class ComputeDevice(ABC):
    """Base class of compute devices, which store arrays and compute with them.

    A device determines where arrays are stored, and which library computes with them.
    """

    name: ClassVar[str]  # "cpu" or "cuda"
    has_own_memory: ClassVar[bool]  # whether arrays of the device are not in host memory
    description: str  # model of the processor
    reason: str  # why this device was selected

    @property
    def memory_limit_bytes(self) -> int | None:
        """Largest size of all arrays on this device together; None without a limit of its own."""
        return None

    @abstractmethod
    def to_device(self, array: Array) -> Array:
        """Return `array` in the memory of this device, without a copy if it is already there."""

    @abstractmethod
    def to_host(self, array: Array) -> HostArray:
        """Return `array` in host memory, without a copy if it is already there."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the compute device has finished all submitted work.

        A clock that is read afterwards includes the work.
        """

    def write_parts_and_copy_to_host(self, vector: Vector, parts: Iterable[VectorPart]) -> HostArray:
        """Write parts into `vector`, which is on this device, and return the vector in host memory.

        The parts cover the vector. They are computed while they are taken from the iterable, and a device may copy a
        part to the host while it computes the next one.
        """
        for part in parts:
            vector[part.start : part.start + len(part.values)] = part.values
        return self.to_host(vector)

    def explain_memory_error(self, error: BaseException) -> str:
        """Return a message for the user about memory that is used up, with the remedy.

        By default, it is the memory of the host.
        """
        return f"a worker gets no more memory of the host ({error}); reduce the batch, the model or the workers"
