"""Compressor to half precision (IEEE 754 binary16)."""

from typing import Literal

from services.compressors.base import (
    Aggregation,
    ArrayFormat,
    CompressedPayload,
    Compressor,
    CompressorSeed,
    SumQuality,
)
from services.schema.arrays import Vector, without_divergence_warnings


class Fp16(Compressor):
    """Half precision: two bytes per entry, a compression ratio of 2 for fp32 vectors.

    Decompressed vectors are fp32. The relative error is at most 2⁻¹¹ for magnitudes in [2⁻¹⁴, 65504]. Below, the
    absolute error is at most 2⁻²⁵. Larger magnitudes become infinite, so training diverges: the trial ends with a
    loss that is not finite as its reason. Clipped gradients would change the training without notice.
    """

    kind: Literal["fp16"] = "fp16"

    @property
    def aggregation(self) -> Aggregation:
        return "partial_sums"

    @property
    def sum_quality(self) -> SumQuality:
        return "rounded"

    def init_state(self, entry_count: int, seed: CompressorSeed) -> None:
        """Return None: this compressor keeps no state."""

    def compress(self, vector: Vector, state: None) -> tuple[CompressedPayload, None]:
        with without_divergence_warnings():
            half = vector.astype("float16")
        return CompressedPayload((half,), vector.size), state

    def decompress(self, payload: CompressedPayload) -> Vector:
        (half,) = payload.arrays
        return half.astype("float32")

    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:  # noqa: ARG002 - always float16
        return (("float16", entry_count),)
