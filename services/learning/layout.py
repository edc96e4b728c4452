"""Where is each array of a model in the one flat vector that everybody else sees?"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import NamedTuple, TypeAlias

from services.schema.arrays import Array, Vector, namespace
from services.schema.component import Record

Shape: TypeAlias = tuple[int, ...]


class Layout(Record):
    """Names and shapes of a model's arrays, one after the other in a vector of `size` entries, each in C order."""

    arrays: tuple[tuple[str, Shape], ...]

    @property
    def size(self) -> int:
        """Entries of the vector."""
        return sum(prod(shape) for _, shape in self.arrays)

    def unpack(self, vector: Vector) -> dict[str, Array]:
        """Every array by its name: views of `vector`, no copies."""
        ends = accumulate((prod(shape) for _, shape in self.arrays), initial=0)
        parts = zip(self.arrays, pairwise(ends), strict=True)
        return {name: vector[start:stop].reshape(shape) for (name, shape), (start, stop) in parts}

    def pack(self, arrays: Mapping[str, Array]) -> Vector:
        """A new vector that holds `arrays`; the inverse of `unpack`."""
        return concatenate([arrays[name] for name, _ in self.arrays])


class Range(NamedTuple):
    """Entries start, …, stop - 1 of a vector."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.stop - self.start

    def of(self, vector: Vector) -> Vector:
        """These entries of `vector`: a view."""
        return vector[self.start : self.stop]


def ranges(size: int, parts: int) -> tuple[Range, ...]:
    """Cut `size` entries into `parts` chunks: chunk k is [⌊size·k/parts⌋, ⌊size·(k+1)/parts⌋).

    They cover everything, do not overlap, and their sizes differ by one entry at most.
    """
    return proportional(size, (1,) * parts)


def proportional(size: int, shares: Sequence[int]) -> tuple[Range, ...]:
    """Cut `size` entries into chunks whose sizes go as `shares`, each within one entry of its exact part.

    Chunk k ends at ⌊size·(share₀ + … + shareₖ)/(sum of shares)⌋. They cover everything and do not overlap.
    """
    total = sum(shares)
    ends = (size * before // total for before in accumulate(shares, initial=0))
    return tuple(Range(start, stop) for start, stop in pairwise(ends))


def concatenate(arrays: list[Array]) -> Vector:
    """All entries of `arrays`, in order, in one new vector."""
    return namespace(arrays[0]).concatenate([array.ravel() for array in arrays])
