"""What is a compressor? A number format for vectors on the wire; it never communicates."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np

from services.schema.arrays import Array, HostArray, Vector
from services.schema.component import Component

State: TypeAlias = Any  # what a compressor keeps between two vectors; None if nothing
Format: TypeAlias = tuple[str, int]  # NumPy's name of a type, number of entries


@dataclass(frozen=True)
class Payload:
    """A compressed vector, ready for the wire."""

    arrays: tuple[Array, ...]  # what is sent
    size: int  # entries of the vector that it stands for

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, without framing."""
        return sum(array.nbytes for array in self.arrays)


class Compressor(Component):
    """Turns a vector into fewer bytes and back; what it loses, and how much it saves, stands in its docstring."""

    @abstractmethod
    def init(self, size: int) -> State:
        """The state before the first vector of `size` entries."""

    @abstractmethod
    def compress(self, x: Vector, state: State) -> tuple[Payload, State]:
        """`x` as a payload, and the next state. `x` stays unchanged; the payload may share its memory."""

    @abstractmethod
    def decompress(self, payload: Payload) -> Vector:
        """The vector that `payload` stands for; it may share the payload's memory."""

    @abstractmethod
    def formats(self, size: int, dtype: str) -> tuple[Format, ...]:
        """The arrays of the payload of a vector with `size` entries of `dtype`: known before there is one."""

    def nbytes(self, size: int, dtype: str) -> int:
        """Bytes on the wire for a vector of `size` entries of `dtype`."""
        return sum(np.dtype(name).itemsize * entries for name, entries in self.formats(size, dtype))


def to_wire(payload: Payload, to_host: Callable[[Array], HostArray] = np.asarray) -> HostArray:
    """The bytes of a payload in host memory, shape (nbytes,); those of a single array are not copied."""
    parts = [np.ascontiguousarray(to_host(array)).view(np.uint8) for array in payload.arrays]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def from_wire(compressor: Compressor, data: HostArray, size: int, dtype: str) -> HostArray:
    """The vector, shape (size,) and of `dtype`, that the bytes of a payload stand for."""
    formats = compressor.formats(size, dtype)
    ends = accumulate((np.dtype(name).itemsize * entries for name, entries in formats), initial=0)
    parts = zip(formats, pairwise(ends), strict=True)
    arrays = tuple(data[start:stop].view(name) for (name, _), (start, stop) in parts)
    return np.asarray(compressor.decompress(Payload(arrays, size)), dtype)
