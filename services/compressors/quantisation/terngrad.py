"""TernGrad: unbiased quantisation to -1, 0 and 1 times a scale per bucket."""

from math import sqrt
from typing import Literal

from pydantic import Field

from services.compressors.base import (
    Aggregation,
    ArrayFormat,
    CompressedPayload,
    Compressor,
    CompressorSeed,
    UnguardedReason,
)
from services.compressors.encoding.blocks import MAX_BUCKET
from services.compressors.encoding.levels import compute_norms, find_largest_magnitudes
from services.compressors.encoding.packed_levels import compress_levels, decompress_levels, packed_level_formats
from services.compressors.encoding.randomness import VectorRandomness
from services.schema.arrays import Array, Vector, array_namespace


class TernGrad(Compressor):
    """TernGrad: two bits per entry and four bytes per bucket, a compression ratio of almost 16 for fp32 vectors.

    The scale s of a bucket is its largest magnitude after clipping to ±c·σ. An entry g becomes s·sign(g) with the
    probability |g|/s, otherwise 0. The mean of the decompressed vector is the clipped vector, and the variance of an
    entry is |g|·(s - |g|), at most s²/4. With `clip: null`, nothing is clipped. A bucket with a value that isn't finite
    decompresses to NaN.

    W. Wen et al., "TernGrad: Ternary gradients to reduce communication in distributed deep learning", NeurIPS 2017.
    Differences from the paper: buckets have a fixed length instead of one bucket per layer, σ is the root mean square
    (the standard deviation of values with mean zero), and workers do not share scales.
    """

    kind: Literal["terngrad"] = "terngrad"
    bucket: int = Field(default=1024, ge=8, le=MAX_BUCKET, multiple_of=8, description="entries that share a scale")
    clip: float | None = Field(
        default=2.5,
        gt=0,
        description="factor c: entries are clipped to c times the root mean square; null: not clipped",
    )

    @property
    def aggregation(self) -> Aggregation:
        return "all_gather"

    def explain_unguarded_sums(self) -> UnguardedReason:
        return UnguardedReason("the error of terngrad can be as large as the vector", "wrap terngrad in error_feedback")

    def init_state(self, entry_count: int, seed: CompressorSeed) -> VectorRandomness:  # noqa: ARG002 - the same for any length
        return VectorRandomness(seed)

    def compress(self, vector: Vector, state: VectorRandomness) -> tuple[CompressedPayload, VectorRandomness]:
        clips = self.clip is not None
        return compress_levels(vector, self.bucket, self._find_scales, 1, state, clips=clips), state.advance()

    def decompress(self, payload: CompressedPayload) -> Vector:
        return decompress_levels(payload, self.bucket, levels=1)

    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:  # noqa: ARG002 - always two bits
        return packed_level_formats(entry_count, self.bucket, levels=1)

    def _find_scales(self, rows: Array) -> Vector:
        """Return the largest magnitude of each row after clipping. Shapes: (rows, entries) → (rows,)."""
        largest = find_largest_magnitudes(rows)
        if self.clip is None:
            return largest
        root_mean_squares = compute_norms(rows) / sqrt(rows.shape[1])
        return array_namespace(rows).minimum(largest, self.clip * root_mean_squares)
