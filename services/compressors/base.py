"""Base class of compressors, which define number formats for vectors on the wire.

A compressor never communicates.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from services.schema.arrays import Array, HostArray, Vector
from services.schema.component import ScenarioComponent

CompressorState: TypeAlias = Any  # what a compressor keeps between two vectors; None for a compressor without state
ArrayFormat: TypeAlias = tuple[str, int]  # NumPy's name of the data type, number of entries
# How a collective sums compressed vectors of all ranks:
# partial_sums   every hop decompresses, adds and compresses again
# payloads       payloads are added as they are, and the sum is decompressed once
# all_gather     every rank gets the payloads of all ranks, decompresses each and adds them
Aggregation: TypeAlias = Literal["partial_sums", "payloads", "all_gather"]


class CompressorSeed(NamedTuple):
    """Seed of the random numbers that a compressor draws for one vector after another."""

    trial_seed: int = 0  # equal on all nodes
    sender: int = 0  # differs by node and range of the parameter vector


@dataclass(frozen=True)
class CompressedPayload:
    """A compressed vector, ready for the wire."""

    arrays: tuple[Array, ...]  # the compressed data
    entries: int  # of the uncompressed vector

    @property
    def nbytes(self) -> int:
        """Size of the payload in bytes, without framing."""
        return sum(array.nbytes for array in self.arrays)


class Compressor(ScenarioComponent):
    """Base class of number formats that convert a vector into fewer bytes and back.

    Each compressor's docstring states its compression ratio, and the error of the vector after decompression.
    """

    @property
    @abstractmethod
    def aggregation(self) -> Aggregation:
        """How a collective sums compressed vectors of all ranks.

        A compressor of partial sums has no state. One whose payloads are added has the same payload types and lengths,
        and encodes the same entries, on all ranks.
        """

    @abstractmethod
    def init_state(self, entry_count: int, seed: CompressorSeed) -> CompressorState:
        """Return the compressor's state before the first vector; None if the compressor keeps no state.

        All vectors have `entry_count` entries. A compressor without random numbers ignores `seed`.
        """

    @abstractmethod
    def compress(self, vector: Vector, state: CompressorState) -> tuple[CompressedPayload, CompressorState]:
        """Return the compressed `vector`, and the compressor's state for the next vector.

        `vector` stays unchanged; the payload may share its memory.
        """

    @abstractmethod
    def decompress(self, payload: CompressedPayload) -> Vector:
        """Return the vector that `payload` encodes.

        The vector may share the payload's memory.
        """

    @abstractmethod
    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:
        """Return the type and length of each array in the payload of a compressed vector.

        The vector has `entry_count` entries of type `dtype`.
        """

    def compressed_size_bytes(self, entry_count: int, dtype: str) -> int:
        """Return the compressed size in bytes of a vector with `entry_count` entries of `dtype`."""
        return sum(np.dtype(name).itemsize * size for name, size in self.payload_dtypes_and_sizes(entry_count, dtype))


def payload_to_bytes(payload: CompressedPayload, to_host_array: Callable[[Array], HostArray] = np.asarray) -> HostArray:
    """Return the bytes of a payload as an array in host memory, with shape (nbytes,).

    A single array in host memory is not copied.
    """
    parts = [np.ascontiguousarray(to_host_array(array)).view(np.uint8) for array in payload.arrays]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def bytes_to_vector(compressor: Compressor, wire_bytes: HostArray, entry_count: int, dtype: str) -> HostArray:
    """Return the vector, with shape (entries,) and type `dtype`, that the bytes of a payload encode."""
    formats = compressor.payload_dtypes_and_sizes(entry_count, dtype)
    ends = accumulate((np.dtype(name).itemsize * size for name, size in formats), initial=0)
    parts = zip(formats, pairwise(ends), strict=True)
    arrays = tuple(wire_bytes[start:stop].view(name) for (name, _), (start, stop) in parts)
    return np.asarray(compressor.decompress(CompressedPayload(arrays, entry_count)), dtype)
