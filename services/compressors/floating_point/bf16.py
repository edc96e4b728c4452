"""Compressor to bfloat16: the range of binary32 with 8 bits of precision."""

from typing import Literal

from services.compressors.base import (
    Aggregation,
    ArrayFormat,
    CompressedPayload,
    Compressor,
    CompressorSeed,
    SumQuality,
)
from services.compressors.encoding.blocks import list_blocks
from services.schema.arrays import Vector, array_namespace, without_divergence_warnings

QUIET_NAN = 0x7FC0


class Bf16(Compressor):
    """bfloat16, rounded to nearest even: two bytes per entry, a compression ratio of 2 for fp32 vectors.

    Decompressed vectors are fp32. The relative error is at most 2⁻⁸ for magnitudes in [2⁻¹²⁶, 3.38·10³⁸]. Below, the
    absolute error is at most 2⁻¹³⁴. Larger magnitudes become infinite. Infinity and NaN stay what they are.
    """

    kind: Literal["bf16"] = "bf16"

    @property
    def aggregation(self) -> Aggregation:
        return "partial_sums"

    @property
    def sum_quality(self) -> SumQuality:
        return "rounded"

    def init_state(self, entry_count: int, seed: CompressorSeed) -> None:
        """Return None: this compressor keeps no state."""

    def compress(self, vector: Vector, state: None) -> tuple[CompressedPayload, None]:
        xp = array_namespace(vector)
        upper = xp.empty(vector.size, "uint16")
        with without_divergence_warnings():
            for block in list_blocks(vector):
                values = vector[block].astype("float32", copy=False)
                upper[block] = _round_to_upper_half(values)
                if xp.isnan(values.max()):
                    upper[block][xp.isnan(values)] = QUIET_NAN  # rounding may turn NaN into infinity or zero
        return CompressedPayload((upper,), vector.size), state

    def decompress(self, payload: CompressedPayload) -> Vector:
        (upper,) = payload.arrays
        bits = upper.astype("uint32")
        bits <<= 16
        return bits.view("float32")

    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:  # noqa: ARG002 - always two bytes
        return (("uint16", entry_count),)


def _round_to_upper_half(values: Vector) -> Vector:
    """Return the upper 16 bits of fp32 values, as uint32, after rounding to nearest even.

    A carry may change the exponent. NumPy is faster at shifting the bits and converting them to 16 bits than at copying
    every second half.
    """
    bits = values.view("uint32")
    rounded = bits >> 16
    rounded &= 1
    rounded += 0x7FFF
    rounded += bits
    rounded >>= 16
    return rounded
