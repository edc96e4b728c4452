"""Compressor that sends vectors unchanged."""

from typing import Literal

from services.compressors.base import (
    Aggregation,
    ArrayFormat,
    CompressedPayload,
    Compressor,
    CompressorSeed,
    SumQuality,
)
from services.schema.arrays import Vector


class IdentityCompressor(Compressor):
    """Compressor that sends the vector unchanged: compression ratio 1, no error."""

    kind: Literal["identity"] = "identity"

    @property
    def aggregation(self) -> Aggregation:
        return "partial_sums"

    @property
    def sum_quality(self) -> SumQuality:
        return "exact"

    def init_state(self, entry_count: int, seed: CompressorSeed) -> None:
        """Return None: this compressor keeps no state."""

    def compress(self, vector: Vector, state: None) -> tuple[CompressedPayload, None]:
        return CompressedPayload((vector,), vector.size), state

    def decompress(self, payload: CompressedPayload) -> Vector:
        (vector,) = payload.arrays
        return vector

    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:
        return ((dtype, entry_count),)
