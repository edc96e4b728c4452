"""The zero of the family: nothing is lost, nothing is saved."""

from typing import Literal

from services.compressors.base import Compressor, Format, Payload
from services.schema.arrays import Vector


class Identity(Compressor):
    """The vector as it is: ratio 1."""

    kind: Literal["identity"] = "identity"

    def init(self, size: int) -> None:
        """No state."""

    def compress(self, x: Vector, state: None) -> tuple[Payload, None]:
        return Payload((x,), x.size), state

    def decompress(self, payload: Payload) -> Vector:
        (x,) = payload.arrays
        return x

    def formats(self, size: int, dtype: str) -> tuple[Format, ...]:
        return ((dtype, size),)
