"""QSGD: unbiased quantisation to few levels per bucket."""

from math import ceil, sqrt
from typing import Literal

from pydantic import Field

from services.compressors.base import (
    Aggregation,
    ArrayFormat,
    CompressedPayload,
    Compressor,
    CompressorSeed,
    SumQuality,
    UnguardedReason,
)
from services.compressors.encoding.blocks import MAX_BUCKET
from services.compressors.encoding.levels import MAX_LEVEL, compute_norms, find_largest_magnitudes
from services.compressors.encoding.packed_levels import compress_levels, decompress_levels, packed_level_formats
from services.compressors.encoding.randomness import VectorRandomness
from services.compressors.optional_contracts import ErrorFeedbackInner, ErrorFeedbackUse
from services.schema.arrays import Vector


class Qsgd(Compressor, ErrorFeedbackInner):
    """QSGD: each entry becomes one of 2s + 1 levels from -norm to norm, by stochastic rounding.

    With s levels above zero, an entry takes as few bits as 2s + 1 values need: 2 for s = 1, 3 for s ≤ 3, 4 for s ≤ 7,
    8 for s ≤ 127. Each bucket of k entries takes four more bytes. The mean of the decompressed vector is the vector.
    The squared error has a mean of at most min(k/s², √k/s)·‖v‖² in a bucket v with `norm: l2`, and k/4·(max|v|/s)²
    with `norm: max`. A bucket with a value that isn't finite decompresses to NaN.

    D. Alistarh et al., "QSGD: Communication-efficient SGD via gradient quantization and encoding", NeurIPS 2017.
    Difference from the paper: levels have a fixed number of bits instead of Elias codes, so that the size of a message
    is known before a run.
    """

    kind: Literal["qsgd"] = "qsgd"
    levels: int = Field(default=7, ge=1, le=MAX_LEVEL, description="number s of levels above zero")
    bucket: int = Field(default=512, ge=8, le=MAX_BUCKET, multiple_of=8, description="entries that share a norm")
    norm: Literal["l2", "max"] = Field(
        default="l2", description="value of the largest level: Euclidean or maximum norm"
    )

    @property
    def aggregation(self) -> Aggregation:
        return "all_gather"

    @property
    def sum_quality(self) -> SumQuality:
        return "lossy" if self._has_small_error else "unguarded"

    def explain_unguarded_sums(self) -> UnguardedReason:
        return UnguardedReason(self._describe_large_error(), self._describe_remedy_for_large_error())

    def init_state(self, entry_count: int, seed: CompressorSeed) -> VectorRandomness:  # noqa: ARG002 - the same for any length
        return VectorRandomness(seed)

    def compress(self, vector: Vector, state: VectorRandomness) -> tuple[CompressedPayload, VectorRandomness]:
        find_peaks = compute_norms if self.norm == "l2" else find_largest_magnitudes
        return compress_levels(vector, self.bucket, find_peaks, self.levels, state), state.advance()

    def decompress(self, payload: CompressedPayload) -> Vector:
        return decompress_levels(payload, self.bucket, self.levels)

    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:  # noqa: ARG002 - the same bits
        return packed_level_formats(entry_count, self.bucket, self.levels)

    def describe_error_feedback(self) -> ErrorFeedbackUse:
        if self._has_small_error:
            return ErrorFeedbackUse(self)
        why = f"{self._describe_large_error()}, so residuals would grow without limit"
        return ErrorFeedbackUse(self, growth_reason=f"{why}; {self._describe_remedy_for_large_error()}")

    @property
    def _has_small_error(self) -> bool:
        """Whether the error of a vector is smaller than the vector."""
        return self.norm == "max" or min(self.bucket / self.levels**2, sqrt(self.bucket) / self.levels) < 1

    def _describe_large_error(self) -> str:
        subject = f"the squared error of qsgd with levels {self.levels} and bucket {self.bucket}"
        return f"{subject} can be larger than the vector"

    def _describe_remedy_for_large_error(self) -> str:
        return f"write levels: {ceil(sqrt(self.bucket)) + 1} or more, a smaller bucket, or norm: max"
