"""1-bit SGD: the sign of each entry, and two means per bucket."""

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
from services.compressors.encoding.bit_packing import count_packed_bytes, count_set_bits
from services.compressors.encoding.blocks import MAX_BUCKET, count_buckets, list_bucket_blocks
from services.compressors.encoding.signs import decode_signs
from services.schema.arrays import Vector, array_namespace, without_divergence_warnings


class OneBit(Compressor):
    """1-bit SGD: one bit per entry and eight bytes per bucket, a compression ratio of almost 32 for fp32 vectors.

    Negative entries of a bucket decompress to their mean, all other entries to theirs. This is the smallest squared
    error that one bit per entry allows for these signs. The error is large and not zero on average, so training needs
    error feedback: `{kind: error_feedback, inner: {kind: one_bit}}`. A bucket with a value that isn't finite
    decompresses to NaN.

    F. Seide et al., "1-bit stochastic gradient descent and its application to data-parallel distributed training of
    speech DNNs", Interspeech 2014. Difference from the paper: buckets of a fixed length instead of the columns of a
    matrix.
    """

    kind: Literal["one_bit"] = "one_bit"
    bucket: int = Field(default=1024, ge=8, le=MAX_BUCKET, multiple_of=8, description="entries that share two means")

    @property
    def aggregation(self) -> Aggregation:
        return "all_gather"

    def explain_unguarded_sums(self) -> UnguardedReason:
        return UnguardedReason("the errors of one_bit do not have a mean of zero", "wrap one_bit in error_feedback")

    def init_state(self, entry_count: int, seed: CompressorSeed) -> None:
        """Return None: this compressor keeps no state."""

    def compress(self, vector: Vector, state: None) -> tuple[CompressedPayload, None]:
        xp, bucket_count = array_namespace(vector), count_buckets(vector.size, self.bucket)
        negatives, others = xp.empty(bucket_count, "float32"), xp.empty(bucket_count, "float32")
        packed = xp.empty(count_packed_bytes(vector.size), "uint8")
        with without_divergence_warnings():
            for block in list_bucket_blocks(vector, self.bucket):
                rows = block.rows_of(vector)
                signs = xp.packbits(rows < 0)
                packed[block.packed_bytes] = signs
                negative_counts = count_set_bits(signs.reshape(rows.shape[0], -1))
                other_counts = rows.shape[1] - negative_counts
                magnitudes = abs(rows)  # v - |v| is exactly 2v for negative entries and 0 for others
                negatives[block.buckets] = (rows - magnitudes).sum(axis=1) / (2 * xp.maximum(negative_counts, 1))
                others[block.buckets] = (rows + magnitudes).sum(axis=1) / (2 * xp.maximum(other_counts, 1))
            not_a_number = (negatives + others) * 0  # NaN if one of the two isn't finite, otherwise 0
        return CompressedPayload((negatives + not_a_number, others + not_a_number, packed), vector.size), state

    def decompress(self, payload: CompressedPayload) -> Vector:
        negatives, others, packed = payload.arrays
        return decode_signs(packed, payload.entries, self.bucket, negatives, others)

    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:  # noqa: ARG002 - always one bit
        means: ArrayFormat = ("float32", count_buckets(entry_count, self.bucket))
        return (means, means, ("uint8", count_packed_bytes(entry_count)))
