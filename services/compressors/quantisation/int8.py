"""Compressor to 8-bit whole numbers with one scale per bucket."""

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
from services.compressors.encoding.blocks import MAX_BUCKET, count_buckets
from services.compressors.encoding.levels import MAX_LEVEL, find_largest_magnitudes, iterate_levels, multiply_rows
from services.compressors.encoding.randomness import VectorRandomness
from services.schema.arrays import Vector, array_namespace, without_divergence_warnings


class Int8(Compressor):
    """Linear quantisation to -127 … 127: one byte per entry and four per bucket, a ratio of almost 4 for fp32 vectors.

    The step of a bucket is its largest magnitude, divided by 127. With stochastic rounding, the mean of the
    decompressed vector is the vector, the error of an entry is below one step, and its variance is at most step²/4.
    With rounding to the nearest level, the error is at most half a step (plus 2⁻²¹ of the largest magnitude), and the
    compressor draws no random numbers. A bucket with a value that isn't finite decompresses to NaN.

    With `scale: shared`, an all-reduce first finds the largest magnitude of each bucket among all workers. Levels of
    all workers then count the same steps, and a second all-reduce adds them as whole numbers of two bytes, without
    further errors (`services.strategies.vector_sums.shared_scale_sum`).
    """

    kind: Literal["int8"] = "int8"
    bucket: int = Field(default=1024, ge=8, le=MAX_BUCKET, multiple_of=8, description="entries that share a scale")
    rounding: Literal["stochastic", "nearest"] = Field(
        default="stochastic", description="stochastic: the mean of the rounded value is the value; nearest: less error"
    )
    scale: Literal["local", "shared"] = Field(
        default="local",
        description="local: every worker has scales of its own; shared: all workers of an all_reduce have the same "
        "scales, so that whole numbers are added at every hop",
    )

    @property
    def aggregation(self) -> Aggregation:
        return "shared_scale" if self.scale == "shared" else "all_gather"

    @property
    def sum_quality(self) -> SumQuality:
        return "lossy" if self.rounding == "stochastic" else "unguarded"

    def explain_unguarded_sums(self) -> UnguardedReason:
        remedy = "write rounding: stochastic"
        return UnguardedReason(
            "the errors of int8 with rounding: nearest do not have a mean of zero",
            remedy if self.scale == "shared" else f"{remedy}, or wrap int8 in error_feedback",
        )

    def init_state(self, entry_count: int, seed: CompressorSeed) -> VectorRandomness | None:  # noqa: ARG002 - the same for any length
        return VectorRandomness(seed) if self.rounding == "stochastic" else None

    def compress(
        self, vector: Vector, state: VectorRandomness | None
    ) -> tuple[CompressedPayload, VectorRandomness | None]:
        xp = array_namespace(vector)
        steps, levels = xp.empty(count_buckets(vector.size, self.bucket), "float32"), xp.empty(vector.size, "int8")
        generator = None if state is None else state.create_generator(vector)
        with without_divergence_warnings():
            for block, block_steps, block_levels in iterate_levels(
                vector, self.bucket, find_largest_magnitudes, MAX_LEVEL, generator
            ):
                steps[block.buckets], levels[block.entries] = block_steps, block_levels
        return CompressedPayload((steps, levels), vector.size), None if state is None else state.advance()

    def decompress(self, payload: CompressedPayload) -> Vector:
        steps, levels = payload.arrays
        vector = levels.astype("float32")
        multiply_rows(vector, self.bucket, steps)
        return vector

    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:  # noqa: ARG002 - always int8
        return (("float32", count_buckets(entry_count, self.bucket)), ("int8", entry_count))
