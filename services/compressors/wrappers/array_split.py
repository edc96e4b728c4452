"""Split of a range of the parameter vector into entries of large and of small arrays."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

from services.schema.arrays import Vector, array_namespace

Slices = tuple[slice, ...]


class ArraySplit(NamedTuple):
    """Entries of a vector that belong to large arrays, and those that belong to small arrays."""

    large: Slices
    small: Slices

    @property
    def large_entry_count(self) -> int:
        """Number of entries in large arrays."""
        return _count_entries(self.large)

    @property
    def small_entry_count(self) -> int:
        """Number of entries in small arrays."""
        return _count_entries(self.small)


@lru_cache(maxsize=1024)
def split_range(array_sizes: Sequence[int], start: int, stop: int, min_entries: int) -> ArraySplit:
    """Return the split of the entries `start` to `stop` - 1 of the parameter vector, as slices of this range.

    An array of the model is large if it has at least `min_entries` entries, also where the range has only a part of it.
    """
    pieces = []
    for size, (first, end) in zip(array_sizes, pairwise(accumulate(array_sizes, initial=0)), strict=True):
        low, high = max(first, start), min(end, stop)
        if low < high:
            pieces.append((size >= min_entries, slice(low - start, high - start)))
    merged = [(is_large, _merge(piece for _, piece in run)) for is_large, run in groupby(pieces, lambda each: each[0])]
    return ArraySplit(*(tuple(piece for is_large, piece in merged if is_large == kind) for kind in (True, False)))


def gather_entries(vector: Vector, slices: Slices) -> Vector:
    """Return the entries of a vector in some slices, one after another; a view if there is one slice."""
    parts = [vector[part] for part in slices]
    return parts[0] if len(parts) == 1 else array_namespace(vector).concatenate(parts)


def scatter_entries(entries: Vector, slices: Slices, vector: Vector) -> None:
    """Write entries into some slices of a vector, in place; the inverse of `gather_entries`."""
    ends = accumulate((part.stop - part.start for part in slices), initial=0)
    for part, (start, stop) in zip(slices, pairwise(ends), strict=True):
        vector[part] = entries[start:stop]


def _merge(neighbours: Iterable[slice]) -> slice:
    """Return one slice in place of slices of which each begins where the one before ends."""
    first, *others = neighbours
    return slice(first.start, others[-1].stop if others else first.stop)


def _count_entries(slices: Slices) -> int:
    return sum(part.stop - part.start for part in slices)
