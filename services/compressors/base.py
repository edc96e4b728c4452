"""Contracts that every compressor implements, and payloads.

A compressor defines a number format for vectors on the wire. It never communicates.

A new compressor is a subclass of `Compressor` with its `kind` and five members: `aggregation`, `init_state`,
`compress`, `decompress` and `payload_dtypes_and_sizes`. CONTRIBUTING.md has a complete example, which a test executes.
All other members have defaults, for a compressor that loses a part of each vector permanently. `optional_contracts`
has the contracts of compressors with a special property, for example of those that depend on the arrays of the model.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from services.schema.arrays import Array, Vector
from services.schema.component import ScenarioComponent

CompressorState: TypeAlias = Any  # what a compressor keeps between two vectors; None for a compressor without state
ArrayFormat: TypeAlias = tuple[str, int]  # NumPy's name of the data type, number of entries
# How workers sum the compressed vectors of all workers:
# partial_sums   every hop of a collective decompresses, adds and compresses again
# payloads       a collective adds the values of payloads (floating-point arrays) as they are, and the sum is
#                decompressed once; arrays of whole numbers are equal on all ranks
# all_gather     every rank gets the payloads of all ranks, decompresses each and adds them
# shared_scale   all ranks count the same steps, and every hop of a collective adds whole numbers
# low_rank       collectives sum factors of matrices, one factor after the other
Aggregation: TypeAlias = Literal["partial_sums", "payloads", "all_gather", "shared_scale", "low_rank"]
# How close sums of compressed vectors are to sums of the vectors, the closest first:
# exact      they are equal
# rounded    every value is rounded to 16 bits
# lossy      errors are smaller than the vector and have a mean of zero, or the next vectors correct them
# unguarded  none of these
SumQuality: TypeAlias = Literal["exact", "rounded", "lossy", "unguarded"]


class UnguardedReason(NamedTuple):
    """Why sums of compressed vectors are unguarded, and how to change the compression so that they are not."""

    reason: str
    remedy: str


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

    @property
    def formats(self) -> tuple[ArrayFormat, ...]:
        """Type and length of each array."""
        return tuple((array.dtype.name, array.size) for array in self.arrays)


class VectorCompression(ScenarioComponent):
    """Properties of a way to exchange vectors with fewer bytes: a compressor, or sums of factors.

    Strategies, the planner and the strategy `auto` read them.
    """

    @property
    @abstractmethod
    def aggregation(self) -> Aggregation:
        """How workers sum the compressed vectors of all workers.

        A compressor of partial sums has no state. One whose payloads are added has the same payload types and lengths,
        and encodes the same entries, on all ranks.
        """

    @property
    @abstractmethod
    def keeps_state(self) -> bool:
        """Whether a worker keeps a state, such as residuals, between two vectors."""

    @property
    def keeps_residual(self) -> bool:
        """Whether what has not been sent of a vector is added to the next vectors."""
        return False

    @property
    def sum_quality(self) -> SumQuality:
        """How close sums of compressed vectors are to sums of the vectors.

        By default, lossy if what is not sent of a vector is added to the next vectors, otherwise unguarded.
        """
        return "lossy" if self.keeps_residual else "unguarded"

    def explain_unguarded_sums(self) -> UnguardedReason:
        """Return why `sum_quality` is unguarded, for a compression of which it is."""
        return UnguardedReason(
            f"{self.kind} loses a part of each vector permanently", f"wrap {self.kind} in error_feedback"
        )


class Compressor(VectorCompression):
    """Number format that converts a vector into fewer bytes and back.

    Workers and servers call its methods while they run. The planner computes the bytes of messages.

    Each compressor's docstring states its compression ratio, and the error of the vector after decompression.
    """

    @property
    def keeps_state(self) -> bool:
        return self.init_state(1, CompressorSeed()) is not None

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
