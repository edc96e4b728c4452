"""Layout of a model's arrays in one flat parameter vector, and contiguous ranges of that vector."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from math import prod
from typing import NamedTuple, TypeAlias

from services.schema.arrays import Array, Vector, array_namespace
from services.schema.component import FrozenRecord

Shape: TypeAlias = tuple[int, ...]


class ParameterLayout(FrozenRecord):
    """Names and shapes of a model's arrays, in their order in the parameter vector.

    Each array is stored in C order, directly after the previous array.
    """

    arrays: tuple[tuple[str, Shape], ...]

    @property
    def parameter_count(self) -> int:
        """Number of entries in the parameter vector."""
        return sum(prod(shape) for _, shape in self.arrays)

    @cached_property
    def vector_ranges(self) -> dict[str, "VectorRange"]:
        """Range of the parameter vector that each array occupies, by the name of the array."""
        ends = accumulate((prod(shape) for _, shape in self.arrays), initial=0)
        bounds = zip(self.arrays, pairwise(ends), strict=True)
        return {name: VectorRange(start, stop) for (name, _), (start, stop) in bounds}

    @cached_property
    def array_ranges(self) -> tuple["ArrayRange", ...]:
        """Range and number of axes of each array, in their order in the parameter vector."""
        ranges = self.vector_ranges
        return tuple(ArrayRange(ranges[name], len(shape)) for name, shape in self.arrays)

    def unpack(self, vector: Vector) -> dict[str, Array]:
        """Return the arrays of a parameter vector by name, as views without copies."""
        ranges = self.vector_ranges
        return {name: ranges[name].view(vector).reshape(shape) for name, shape in self.arrays}

    def pack(self, arrays: Mapping[str, Array]) -> Vector:
        """Return a new parameter vector that contains `arrays`; the inverse of `unpack`."""
        return flatten_arrays([arrays[name] for name, _ in self.arrays])


class VectorRange(NamedTuple):
    """Contiguous range of a vector: the entries from `start` to `stop` - 1."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of entries in this range of a vector."""
        return self.stop - self.start

    def view(self, vector: Vector) -> Vector:
        """Return the entries of `vector` in this range, as a view."""
        return vector[self.start : self.stop]


class ArrayRange(NamedTuple):
    """Range of the parameter vector that one array of the model occupies."""

    vector_range: VectorRange
    axis_count: int  # of the array: 1 for biases and normalisations, 2 or more for weights


def equal_vector_ranges(entry_count: int, range_count: int) -> tuple[VectorRange, ...]:
    """Cut a vector into `range_count` contiguous ranges; their sizes differ by one entry at most.

    Range k of n is [⌊entries·k/n⌋, ⌊entries·(k+1)/n⌋). The ranges cover the whole vector and do not overlap.
    """
    return proportional_vector_ranges(entry_count, (1,) * range_count)


def proportional_vector_ranges(entry_count: int, shares: Sequence[int]) -> tuple[VectorRange, ...]:
    """Cut a vector into contiguous ranges whose sizes are proportional to `shares`, rounded to whole entries.

    Range k ends at ⌊entries·(share₀ + … + shareₖ)/(sum of shares)⌋. The ranges cover the whole vector and do not
    overlap.
    """
    total_shares = sum(shares)
    ends = (entry_count * cumulative_shares // total_shares for cumulative_shares in accumulate(shares, initial=0))
    return tuple(VectorRange(start, stop) for start, stop in pairwise(ends))


def flatten_arrays(arrays: list[Array]) -> Vector:
    """Return all entries of `arrays`, in order, in one new vector."""
    return array_namespace(arrays[0]).concatenate([array.ravel() for array in arrays])
