"""Compressor to 4-bit floating-point numbers with one scale per bucket."""

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
from services.compressors.encoding.bit_packing import BitPlanes, count_packed_bytes
from services.compressors.encoding.blocks import MAX_BUCKET, count_buckets, list_bucket_blocks
from services.compressors.encoding.levels import compute_steps, find_largest_magnitudes, multiply_rows
from services.schema.arrays import Array, Vector, array_namespace, without_divergence_warnings

BITS = 4  # the highest is the sign, the others are the exponent
SIGN_BIT, MAX_EXPONENT = 8, 7  # exponent e > 0: the magnitude is 2^(e - 7); exponent 0: the number is 0
SMALLEST = 2.0 ** (1 - MAX_EXPONENT)
MAGNITUDES = (0.0, *(2.0 ** (exponent - MAX_EXPONENT) for exponent in range(1, MAX_EXPONENT + 1)))
NUMBERS = (*MAGNITUDES, *(-magnitude for magnitude in MAGNITUDES))  # by their four bits
FP32_FRACTION_BITS, FP32_EXPONENT_OF_ONE = 23, 127
# From 3/4 of a power of two on, a magnitude is nearer to this power than to half of it. Times 4/3, it has its exponent.
EXPONENT_FACTOR = 4 / 3


class Fp4(Compressor):
    """Floating-point numbers of four bits (E3M0), and four bytes per bucket: a ratio of almost 8 for fp32 vectors.

    A number has a sign, three bits of exponent and no fraction: 0, or ±2⁻⁶, ±2⁻⁵, …, ±1 times the scale of its bucket,
    which is the bucket's largest magnitude. Entries are rounded to the nearest number. The error of an entry is at most
    a third of it, or 2⁻⁷ of the scale if that is more, and never larger than the entry. The compressor draws no random
    numbers. A bucket with a value that isn't finite decompresses to NaN.

    Format of the outer gradients in A. Douillard et al., "Streaming DiLoCo with overlapping communication: Towards a
    distributed free lunch", arXiv:2501.18512, 2025. The paper does not describe scales; here, buckets have one.
    """

    kind: Literal["fp4"] = "fp4"
    bucket: int = Field(default=1024, ge=8, le=MAX_BUCKET, multiple_of=8, description="entries that share a scale")

    @property
    def aggregation(self) -> Aggregation:
        return "all_gather"

    def explain_unguarded_sums(self) -> UnguardedReason:
        return UnguardedReason(
            "the errors of fp4, which rounds to the nearest number, do not have a mean of zero",
            "wrap fp4 in error_feedback",
        )

    def init_state(self, entry_count: int, seed: CompressorSeed) -> None:
        """Return None: this compressor keeps no state."""

    def compress(self, vector: Vector, state: None) -> tuple[CompressedPayload, None]:
        xp = array_namespace(vector)
        (_, scale_count), (_, packed_size) = self.payload_dtypes_and_sizes(vector.size, "float32")
        scales, packed = xp.empty(scale_count, "float32"), xp.empty(packed_size, "uint8")
        planes = BitPlanes(packed, BITS)
        with without_divergence_warnings():
            for block in list_bucket_blocks(vector, self.bucket):
                rows = block.rows_of(vector).astype("float32", copy=False)
                scales[block.buckets] = compute_steps(find_largest_magnitudes(rows), 1)
                planes.write_block(block, _encode(rows, scales[block.buckets]))
        return CompressedPayload((scales, packed), vector.size), state

    def decompress(self, payload: CompressedPayload) -> Vector:
        scales, packed = payload.arrays
        xp = array_namespace(packed)
        vector, planes = xp.empty(payload.entries, "float32"), BitPlanes(packed, BITS)
        numbers = xp.asarray(NUMBERS, "float32")
        for block in list_bucket_blocks(vector, self.bucket):
            vector[block.entries] = numbers[planes.read_block(block)]
        multiply_rows(vector, self.bucket, scales)
        return vector

    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:  # noqa: ARG002 - always four bits
        return (("float32", count_buckets(entry_count, self.bucket)), ("uint8", BITS * count_packed_bytes(entry_count)))


def _encode(rows: Array, scales: Vector) -> Vector:
    """Return the four bits of each entry, of the type uint8. Shapes: (buckets, entries), (buckets,) → (entries,).

    Entries of a bucket whose scale is 0 or NaN get any bits.
    """
    shifted = abs(rows) * (EXPONENT_FACTOR / scales)[:, None]
    exponents = (shifted.view("int32") >> FP32_FRACTION_BITS) - (FP32_EXPONENT_OF_ONE - MAX_EXPONENT)
    exponents = array_namespace(rows).clip(exponents, 1, MAX_EXPONENT)
    exponents *= shifted >= EXPONENT_FACTOR * SMALLEST / 2  # smaller ones are nearer to 0
    exponents += SIGN_BIT * (rows < 0)
    return exponents.reshape(-1).astype("uint8")
