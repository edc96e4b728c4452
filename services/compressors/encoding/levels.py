"""Linear quantisation: each bucket has a step, and each entry becomes a whole number of steps (its level).

Stochastic rounding adds a random offset, uniform between -1/2 and 1/2 step, before it rounds to the nearest level. The
mean of the rounded value is then the entry itself. Offsets are multiples of 2⁻¹⁶ steps, so the mean deviates by less
than 2⁻¹⁶ steps.

Steps are fp32 and are part of the payload. A bucket with a value that isn't finite has the step NaN and decompresses to
NaN, so that divergence stays visible. A bucket whose largest level would be below 2⁻¹⁰⁰ has the step 0.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from services.compressors.encoding.blocks import BucketBlock, count_buckets, list_bucket_blocks
from services.compressors.encoding.randomness import RANDOM_BITS, draw_offsets
from services.schema.arrays import Array, Vector, array_namespace

MAX_LEVEL = 127  # levels are int8
_MIN_PEAK = 2.0**-100
RowPeaks: TypeAlias = Callable[[Array], Vector]  # rows of entries (buckets, entries) → the value of the largest level
_UNITS = float(1 << RANDOM_BITS)  # in a step
# Adding 1.5 · 2²³ steps shifts the bits of a number so that the lowest byte of its significand is the nearest level.
_ROUNDING_SHIFT = 1.5 * (1 << 23) * _UNITS
# Steps are larger than the exact quotient, so that no entry exceeds the largest level after rounding errors of fp32.
_STEP_MARGIN = 1 + 2.0**-21


def compute_steps(peaks: Vector, levels: int) -> Vector:
    """Return the steps of buckets, given the magnitudes of their largest levels; see the module for special values."""
    xp = array_namespace(peaks)
    steps = (peaks * (_STEP_MARGIN / levels)).astype("float32")
    steps = xp.where(peaks < _MIN_PEAK, xp.zeros_like(steps), steps)
    return xp.where(xp.isfinite(steps), steps, xp.full_like(steps, xp.nan))


def round_to_levels(rows: Array, steps: Vector, offsets: Vector | None, clipped_level: int | None = None) -> Vector:
    """Return the levels of buckets, shape (entries,) and type int8.

    Args:
        rows: entries as fp32, one bucket per row.
        steps: of the buckets.
        offsets: random offsets of `draw_offsets`, one for each entry; None rounds to the nearest level.
        clipped_level: largest magnitude of a level, for entries that may exceed it; None: no entry does.
    """
    units = rows * (_UNITS / steps)[:, None]
    if clipped_level is not None:
        units = array_namespace(rows).clip(units, -clipped_level * _UNITS, clipped_level * _UNITS)
    if offsets is not None:
        units += offsets.reshape(units.shape)
    units += _ROUNDING_SHIFT
    return units.reshape(-1).view("int8")[::4]


def iterate_levels(
    vector: Vector,
    bucket: int,
    find_peaks: RowPeaks,
    levels: int,
    generator: Any | None,
    *,
    clips: bool = False,
) -> Iterator[tuple[BucketBlock, Vector, Vector]]:
    """Yield each block of a vector with the steps of its buckets and the levels of its entries.

    Args:
        vector: the vector; values beyond fp32 count as infinite.
        bucket: entries of a bucket.
        find_peaks: returns the magnitude of each bucket's largest level.
        levels: number of the largest level.
        generator: draws the offsets of stochastic rounding; None rounds to the nearest level.
        clips: whether entries may exceed the largest level, and are clipped to it.
    """
    for block in list_bucket_blocks(vector, bucket):
        rows = block.rows_of(vector).astype("float32", copy=False)
        steps = compute_steps(find_peaks(rows), levels)
        offsets = None if generator is None else draw_offsets(generator, rows.size)
        yield block, steps, round_to_levels(rows, steps, offsets, levels if clips else None)


def find_bucket_peaks(vector: Vector, bucket: int) -> Vector:
    """Return the largest magnitude of each bucket, as fp32; NaN if the bucket contains NaN. Shape: (buckets,)."""
    peaks = array_namespace(vector).empty(count_buckets(vector.size, bucket), "float32")
    for block in list_bucket_blocks(vector, bucket):
        peaks[block.buckets] = find_largest_magnitudes(block.rows_of(vector).astype("float32", copy=False))
    return peaks


def round_to_given_steps(vector: Vector, bucket: int, steps: Vector, generator: Any | None) -> Vector:
    """Return the levels of a vector, shape (entries,) and type int8, for given steps of its buckets.

    No entry may exceed the largest level. Levels of a bucket whose step is 0 or NaN have no meaning.

    Args:
        vector: the vector.
        bucket: entries of a bucket.
        steps: of the buckets, shape (buckets,).
        generator: draws the offsets of stochastic rounding; None rounds to the nearest level.
    """
    levels = array_namespace(vector).empty(vector.size, "int8")
    for block in list_bucket_blocks(vector, bucket):
        rows = block.rows_of(vector).astype("float32", copy=False)
        offsets = None if generator is None else draw_offsets(generator, rows.size)
        levels[block.entries] = round_to_levels(rows, steps[block.buckets], offsets)
    return levels


def find_largest_magnitudes(rows: Array) -> Vector:
    """Return the largest magnitude of each row; NaN if the row contains NaN. Shapes: (rows, entries) → (rows,)."""
    return array_namespace(rows).maximum(rows.max(axis=1), -rows.min(axis=1))


def compute_norms(rows: Array) -> Vector:
    """Return the Euclidean norm of each row; NaN if a value isn't finite. Shapes: (rows, entries) → (rows,).

    Rows are divided by their largest magnitude first, so that squares neither overflow nor vanish.
    """
    xp = array_namespace(rows)
    peaks = find_largest_magnitudes(rows)
    scales = xp.where(peaks < _MIN_PEAK, xp.ones_like(peaks), peaks)
    relative = rows * (1 / scales)[:, None]
    relative *= relative
    return scales * xp.sqrt(relative.sum(axis=1))


def multiply_rows(vector: Vector, bucket: int, steps: Vector) -> None:
    """Multiply the entries of each bucket by the bucket's step, in place."""
    for block in list_bucket_blocks(vector, bucket):
        rows = block.rows_of(vector)
        rows *= steps[block.buckets][:, None]
