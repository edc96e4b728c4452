"""The k entries of a vector with the largest magnitudes, and their positions.

Y. Lin et al., "Deep gradient compression", ICLR 2018, estimate a threshold from a sample, and select the entries above
it. Here the threshold is low enough to find at least k entries, among which the k largest are selected exactly. So the
result is that of a selection among all entries, of which most are read only once.

Magnitudes are compared as whole numbers: without the sign, the bits of a floating-point number have the order of the
magnitudes. NaN has the largest magnitude, so it is sent and stays visible.
"""

from math import ceil, sqrt

import numpy as np

from services.compressors.encoding.blocks import list_blocks
from services.schema.arrays import Array, Vector, array_namespace

MIN_SAMPLED_ENTRIES = 1 << 16  # a shorter vector is not sampled
SAMPLE_SHARE = 0.01
MIN_SAMPLE_ENTRIES = 1 << 14


def count_kept_entries(ratio: float, entry_count: int) -> int:
    """Return the number k of entries that a sparse compressor keeps: the rounded share, but at least one."""
    return max(1, round(ratio * entry_count))


def find_largest_entries(vector: Vector, count: int, *, uses_sample: bool) -> Vector:
    """Return the positions of the `count` largest magnitudes, ascending, as uint32.

    Of equal magnitudes, those with the lowest positions are selected. `uses_sample` changes the time, not the result.
    """
    xp = array_namespace(vector)
    if count == vector.size:
        return xp.arange(count, dtype="uint32")
    candidates = _find_candidates(vector, count) if uses_sample else None
    if candidates is None:
        return _select_largest(_magnitude_bits(vector), count).astype("uint32")
    return candidates[_select_largest(_magnitude_bits(vector[candidates]), count)].astype("uint32")


def _find_candidates(vector: Vector, count: int) -> Vector | None:
    """Return the positions of all entries above a threshold that at least `count` entries exceed.

    The threshold is estimated from every n-th entry. Return None if a selection among all entries costs less.
    """
    if vector.size < MIN_SAMPLED_ENTRIES:
        return None
    wanted = max(MIN_SAMPLE_ENTRIES, int(SAMPLE_SHARE * vector.size))
    sample = _magnitude_bits(array_namespace(vector).ascontiguousarray(vector[:: (vector.size // wanted) | 1]))
    expected = count / vector.size * sample.size
    above = ceil(expected + 4 * sqrt(expected) + 4)  # in the sample: four standard deviations more than expected
    while above < sample.size // 4:
        threshold = sample.copy()
        threshold.partition(sample.size - above)
        candidates = _find_entries_above(vector, threshold[sample.size - above])
        if candidates.size >= count:
            return candidates
        above *= 2
    return None


def _find_entries_above(vector: Vector, threshold: Array) -> Vector:
    """Return the positions of all entries whose magnitude bits are at least `threshold`, and not zero."""
    xp = array_namespace(vector)
    lowest = xp.maximum(threshold, xp.ones_like(threshold))
    return xp.concatenate(
        [xp.flatnonzero(_magnitude_bits(vector[block]) >= lowest) + block.start for block in list_blocks(vector)]
    )


def _select_largest(magnitude_bits: Vector, count: int) -> Vector:
    """Return the positions of the `count` largest numbers, ascending; of equal numbers those with lowest positions."""
    xp = array_namespace(magnitude_bits)
    if count == magnitude_bits.size:
        return xp.arange(count)
    ordered = magnitude_bits.copy()
    ordered.partition(magnitude_bits.size - count)
    smallest = ordered[magnitude_bits.size - count]
    is_selected = magnitude_bits > smallest
    equal = xp.flatnonzero(magnitude_bits == smallest)
    is_selected[equal[: count - int(xp.count_nonzero(is_selected))]] = True
    return xp.flatnonzero(is_selected)


def _magnitude_bits(values: Vector) -> Vector:
    """Return the bits of floating-point numbers without their sign, as whole numbers of the same size."""
    return values.view(f"uint{8 * np.dtype(values.dtype).itemsize}") << 1
