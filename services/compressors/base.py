"""Base class of compressors, which define number formats for vectors on the wire.

A compressor never communicates.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np

from services.schema.arrays import Array, HostArray, Vector
from services.schema.component import ScenarioComponent
from services.schema.conflicts import KeyConflict

CompressorState: TypeAlias = Any  # what a compressor keeps between two vectors; None for a compressor without state
ArrayFormat: TypeAlias = tuple[str, int]  # NumPy's name of the data type, number of entries
# How a collective sums compressed vectors of all ranks:
# partial_sums   every hop decompresses, adds and compresses again
# payloads       values of payloads (floating-point arrays) are added as they are, and the sum is decompressed once;
#                arrays of whole numbers are equal on all ranks
# all_gather     every rank gets the payloads of all ranks, decompresses each and adds them
# shared_scale   all ranks count the same steps, and every hop adds whole numbers
# low_rank       factors of matrices are summed, one factor after the other
Aggregation: TypeAlias = Literal["partial_sums", "payloads", "all_gather", "shared_scale", "low_rank"]
ArrayShape: TypeAlias = tuple[int, ...]
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


class FormatStage(NamedTuple):
    """Consecutive vectors of a sender whose payloads have equal sizes."""

    end: int  # number of the first vector after this stage
    compressor: "Compressor"  # all of whose payloads have these sizes


class VectorCompression(ScenarioComponent):
    """Base class of the ways to exchange vectors with fewer bytes: number formats, and sums of factors."""

    @property
    @abstractmethod
    def aggregation(self) -> Aggregation:
        """How a collective sums compressed vectors of all ranks.

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

    @property
    def applies_momentum(self) -> bool:
        """Whether momentum is added to gradients, so that the optimiser must not add momentum again."""
        return False

    def fit_to_model(self, array_shapes: Sequence[ArrayShape]) -> Self:  # noqa: ARG002 - most do not depend on arrays
        """Return a copy for a model with arrays of these shapes, in the order of the parameter vector."""
        return self

    def list_format_stages(self) -> tuple["FormatStage", ...]:
        """Return the stages of the first vectors of a sender, whose payloads differ in size from all later ones."""
        return ()

    def after_format_stages(self) -> Self:
        """Return the compression of the vectors after `list_format_stages`, for all vectors."""
        return self

    @property
    def depends_on_arrays(self) -> bool:
        """Whether `fit_to_model` has an effect, so that vectors must begin and end like the parameter vector."""
        return False

    def find_model_conflict(
        self,
        array_shapes: Sequence[ArrayShape],  # noqa: ARG002 - most fit every model
        *,
        has_declared_payload: bool,  # noqa: ARG002
    ) -> KeyConflict | None:
        """Return why this compression cannot be used for a model, at the key to change; None if it can.

        Args:
            array_shapes: shapes of the model's arrays; empty: not known.
            has_declared_payload: whether messages are as large as those of another model.
        """
        return None


class Compressor(VectorCompression):
    """Base class of number formats that convert a vector into fewer bytes and back.

    Each compressor's docstring states its compression ratio, and the error of the vector after decompression.
    """

    @property
    def keeps_state(self) -> bool:
        return self.init_state(1, CompressorSeed()) is not None

    def adapt_to_error_feedback(self) -> "Compressor":
        """Return the compressor that error feedback uses in place of this one, for example without a factor.

        By default, return this compressor.
        """
        return self

    def explain_growing_residual(self) -> str | None:
        """Return why residuals of error feedback would grow without limit around this compressor.

        Return None if the error of a vector is smaller than the vector, so that residuals stay limited.
        """
        return None

    def fit_to_range(self, start: int, stop: int) -> Self:  # noqa: ARG002 - most do not depend on arrays
        """Return a copy for vectors that are the entries `start` to `stop` - 1 of the parameter vector."""
        return self

    def lossless_variant(self) -> "Compressor | None":
        """Return the compressor that sends entries without an error but changes training like this one.

        Its payload has one array, with the values of all entries. Return None if it sends the vector unchanged.
        """
        return None

    @property
    def density(self) -> float | None:
        """Share of the entries that a sparse compressor sends; None if the compressor is not sparse."""
        return None

    def with_density(self, density: float) -> Self:  # noqa: ARG002 - most are not sparse
        """Return a copy of a sparse compressor that sends another share of the entries, in all vectors."""
        return self

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


def bytes_to_payload(compressor: Compressor, wire_bytes: HostArray, entry_count: int, dtype: str) -> CompressedPayload:
    """Return the payload, with arrays in host memory, that was sent as bytes.

    The payload is that of a vector with `entry_count` entries of type `dtype`. Its arrays share the memory of
    `wire_bytes`.
    """
    return split_wire_bytes(wire_bytes, compressor.payload_dtypes_and_sizes(entry_count, dtype), entry_count)


def split_wire_bytes(wire_bytes: HostArray, formats: Sequence[ArrayFormat], entry_count: int) -> CompressedPayload:
    """Return the payload, with arrays of these formats, that was sent as bytes; its arrays share their memory."""
    ends = accumulate((np.dtype(name).itemsize * size for name, size in formats), initial=0)
    parts = zip(formats, pairwise(ends), strict=True)
    arrays = tuple(wire_bytes[start:stop].view(name) for (name, _), (start, stop) in parts)
    return CompressedPayload(arrays, entry_count)


def bytes_to_vector(compressor: Compressor, wire_bytes: HostArray, entry_count: int, dtype: str) -> HostArray:
    """Return the vector, with shape (entries,) and type `dtype`, that the bytes of a payload encode."""
    return np.asarray(compressor.decompress(bytes_to_payload(compressor, wire_bytes, entry_count, dtype)), dtype)
