"""Compressor that sends vectors unchanged."""

from typing import Literal

from services.compressors.base import ArrayFormat, Compressor, Payload
from services.schema.arrays import Vector


class IdentityCompressor(Compressor):
    """Sends the vector unchanged: ratio 1, no error."""

    kind: Literal["identity"] = "identity"

    def init_state(self, entries: int) -> None:
        """Return None: this compressor keeps no state."""

    def compress(self, vector: Vector, state: None) -> tuple[Payload, None]:
        return Payload((vector,), vector.size), state

    def decompress(self, payload: Payload) -> Vector:
        (vector,) = payload.arrays
        return vector

    def array_formats(self, entries: int, dtype: str) -> tuple[ArrayFormat, ...]:
        return ((dtype, entries),)
