"""Whole numbers on the wire: partial sums of levels that all workers count in the same steps."""

from typing import Literal

from services.compressors.base import Aggregation, ArrayFormat, CompressedPayload, Compressor, CompressorSeed
from services.schema.arrays import Vector

LARGEST_NUMBER = (1 << 15) - 1


class Int16Levels(Compressor):
    """Vectors of whole numbers from -32,767 to 32,767: two bytes per entry, without an error.

    A scenario cannot select this compressor: gradients are no whole numbers.
    """

    kind: Literal["whole_numbers"] = "whole_numbers"

    @property
    def aggregation(self) -> Aggregation:
        return "partial_sums"

    def init_state(self, entry_count: int, seed: CompressorSeed) -> None:
        """Return None: this compressor keeps no state."""

    def compress(self, vector: Vector, state: None) -> tuple[CompressedPayload, None]:
        return CompressedPayload((vector.astype("int16"),), vector.size), state

    def decompress(self, payload: CompressedPayload) -> Vector:
        (numbers,) = payload.arrays
        return numbers.astype("float32")

    def payload_dtypes_and_sizes(self, entry_count: int, dtype: str) -> tuple[ArrayFormat, ...]:  # noqa: ARG002 - always int16
        return (("int16", entry_count),)
