"""What is a compressor? A number format for vectors on the wire; it never communicates."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, TypeAlias

from services.component import Component
from services.device import Array, Vector

State: TypeAlias = Any  # what a compressor keeps between two vectors; None if nothing


@dataclass(frozen=True)
class Payload:
    """A compressed vector, ready for the wire."""

    arrays: tuple[Array, ...]  # what is sent
    size: int  # entries of the vector that it stands for

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, without framing."""
        return sum(array.nbytes for array in self.arrays)


class Compressor(Component):
    """Turns a vector into fewer bytes and back; what it loses, and how much it saves, stands in its docstring."""

    @abstractmethod
    def init(self, size: int) -> State:
        """The state before the first vector of `size` entries."""

    @abstractmethod
    def compress(self, x: Vector, state: State) -> tuple[Payload, State]:
        """`x` as a payload, and the next state. `x` stays unchanged; the payload may share its memory."""

    @abstractmethod
    def decompress(self, payload: Payload) -> Vector:
        """The vector that `payload` stands for; it may share the payload's memory."""
