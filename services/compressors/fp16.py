"""Half precision on the wire (IEEE 754 binary16)."""

from typing import Literal

from services.compressors.base import Compressor, Format, Payload
from services.schema.arrays import Vector

LARGEST = 65504.0  # the largest finite binary16; beyond it a cast gives infinity, which would poison every sum


class Fp16(Compressor):
    """Two bytes an entry: ratio 2 for fp32 vectors. Vectors come back as fp32.

    Relative error at most 2⁻¹¹ for magnitudes in [2⁻¹⁴, 65504], absolute error at most 2⁻²⁵ below; clipped above.
    """

    kind: Literal["fp16"] = "fp16"

    def init(self, size: int) -> None:
        """No state."""

    def compress(self, x: Vector, state: None) -> tuple[Payload, None]:
        return Payload((x.clip(-LARGEST, LARGEST).astype("float16"),), x.size), state

    def decompress(self, payload: Payload) -> Vector:
        (half,) = payload.arrays
        return half.astype("float32")

    def formats(self, size: int, dtype: str) -> tuple[Format, ...]:  # noqa: ARG002 - always halves
        return (("float16", size),)
