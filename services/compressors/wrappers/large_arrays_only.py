"""Compression of the large arrays of a model only: small arrays travel uncompressed."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Annotated, Literal, NamedTuple, Self, TypeAlias

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from services.compressors.base import ArrayFormat, CompressedPayload, Compressor, CompressorSeed, CompressorState
from services.compressors.identity import IdentityCompressor
from services.compressors.optional_contracts import (
    ArrayShape,
    ModelDependentCompression,
    MomentumCompressor,
    RangeDependentCompressor,
)
from services.compressors.sparsification.dgc import Dgc
from services.compressors.without_residual import CompressorWithoutResidual
from services.compressors.wrappers.array_split import ArraySplit, gather_entries, scatter_entries, split_range
from services.compressors.wrappers.base import CompressorWrapper
from services.compressors.wrappers.error_feedback import ErrorFeedback
from services.schema.arrays import Array, Vector, array_namespace
from services.schema.component import SET_BY_ENSAYO
from services.schema.conflicts import KeyConflict
from services.schema.errors import ProtocolError

CompressorOfLargeArrays: TypeAlias = Annotated[
    CompressorWithoutResidual | Dgc | ErrorFeedback, Field(discriminator="kind")
]
# The union of compressors is validated as Python objects, for which strict validation distinguishes lists and tuples.
LIST_AS_TUPLE = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)


class LargeArraysState(NamedTuple):
    """States of the compressors of large and of small arrays."""

    large: CompressorState
    small: CompressorState


class LargeArraysOnly(CompressorWrapper, ModelDependentCompression, RangeDependentCompressor):
    """Compressor of the arrays of the model that have at least `min_entries` entries.

    Smaller arrays, such as biases and the scales of normalisation layers, are sent uncompressed, in the same message.
    They are few of the bytes, but sensitive: a sparse compressor rarely sends them, and a scale that they share with a
    large array is too coarse for them. The entries of all large arrays are one vector for the compressor `inner`, which
    keeps its state, such as residuals, for them only.

    A payload has the bytes of the uncompressed entries, and those of `inner` for the others. An uncompressed entry has
    no error. With `dgc`, uncompressed entries get the momentum of `dgc` as well, since the optimiser adds none.

    The implementations of deep gradient compression and PowerSGD by their authors compress only arrays with at least
    two axes. Here the number of entries decides, because small matrices gain as little from compression as biases.
    """

    kind: Literal["large_arrays_only"] = "large_arrays_only"
    min_entries: PositiveInt = Field(1024, description="arrays of the model with fewer entries are sent uncompressed")
    inner: CompressorOfLargeArrays = Field(description="compressor of the other arrays")
    array_sizes: Annotated[tuple[int, ...], LIST_AS_TUPLE] = Field(
        (),
        description="sizes of the model's arrays; set by Ensayo, do not write it",
        json_schema_extra=SET_BY_ENSAYO,
    )
    entry_range: Annotated[tuple[int, int] | None, LIST_AS_TUPLE] = Field(
        None,
        strict=False,
        description="range of the parameter vector that is compressed; set by Ensayo, do not write it",
        json_schema_extra=SET_BY_ENSAYO,
    )

    @model_validator(mode="after")
    def _reject_partial_sums(self) -> Self:
        if self.inner.aggregation == "partial_sums":
            raise ValueError(
                f"{self.inner.kind} compresses chunks of the vector, which do not end where arrays of the model end; "
                f"use {self.inner.kind} without large_arrays_only, or another compressor, such as int8"
            )
        return self

    def init_state(self, entry_count: int, seed: CompressorSeed) -> LargeArraysState | None:
        split = self._split(entry_count)
        state = LargeArraysState(
            self.inner.init_state(split.large_entry_count, seed),
            self._small_arrays_compressor.init_state(split.small_entry_count, seed),
        )
        return None if state == (None, None) else state

    def compress(
        self, vector: Vector, state: LargeArraysState | None
    ) -> tuple[CompressedPayload, LargeArraysState | None]:
        split, states = self._split(vector.size), state or LargeArraysState(None, None)
        arrays: list[Array] = []
        if split.small:
            entries = gather_entries(vector, split.small)
            payload, small = self._small_arrays_compressor.compress(entries, states.small)
            arrays, states = [*payload.arrays], states._replace(small=small)
        if split.large:
            payload, large = self.inner.compress(gather_entries(vector, split.large), states.large)
            arrays, states = [*arrays, *payload.arrays], states._replace(large=large)
        return CompressedPayload(tuple(arrays), vector.size), None if state is None else states

    def decompress(self, payload: CompressedPayload) -> Vector:
        split, arrays = self._split(payload.entries), payload.arrays
        if not split.small:
            return self.inner.decompress(payload)
        small, *others = arrays
        if not split.large:
            return small
        large = self.inner.decompress(CompressedPayload(tuple(others), split.large_entry_count))
        vector = array_namespace(small).empty(payload.entries, small.dtype)
        scatter_entries(small, split.small, vector)
        scatter_entries(large, split.large, vector)
        return vector

    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:
        split = self._split(entry_count)
        small = ((dtype, split.small_entry_count),) if split.small else ()
        large = self.inner.payload_dtypes_and_sizes(split.large_entry_count, dtype) if split.large else ()
        return (*small, *large)

    def fit_to_model(self, array_shapes: Sequence[ArrayShape]) -> Self:
        return self.model_copy(update={"array_sizes": tuple(map(prod, array_shapes))})

    def fit_to_range(self, start: int, stop: int) -> Self:
        return self.model_copy(update={"entry_range": (start, stop)})

    def find_model_conflicts(
        self, array_shapes: Sequence[ArrayShape], *, has_declared_payload: bool
    ) -> Iterator[KeyConflict]:
        if has_declared_payload:
            why = f"{self.kind} depends on the sizes of all arrays, which workload.payload does not declare"
            remedy = f"use its inner compressor {self.inner.kind} without {self.kind}, or remove workload.payload"
            yield KeyConflict((), f"{why}; {remedy}")
            return
        largest = max(map(prod, array_shapes), default=self.min_entries)
        if largest < self.min_entries:
            why = f"every array of this model has fewer than min_entries ({self.min_entries:,}) entries"
            yield KeyConflict(("min_entries",), f"{why}, so nothing would be compressed; use at most {largest:,}")

    @property
    def _small_arrays_compressor(self) -> Compressor:
        """Compressor of the small arrays, which sends entries without an error."""
        return self.inner.lossless_variant() if isinstance(self.inner, MomentumCompressor) else IdentityCompressor()

    def _split(self, entry_count: int) -> ArraySplit:
        """Return which entries of a vector belong to large and to small arrays.

        Raises:
            ProtocolError: the arrays of the model are not known, or the vector is not the range of the parameter
                vector for which this compressor is.
        """
        if not self.array_sizes:
            raise ProtocolError(f"{self.kind} has not been fitted to the arrays of a model")
        start, stop = self.entry_range or (0, sum(self.array_sizes))
        if stop - start != entry_count:
            raise ProtocolError(
                f"{self.kind} is for the entries {start:,} to {stop:,} of the parameter vector, but a vector has "
                f"{entry_count:,} entries"
            )
        return split_range(self.array_sizes, start, stop, self.min_entries)
