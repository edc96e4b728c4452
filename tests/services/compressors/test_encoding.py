"""Shared steps of compressors: packed bits, levels, and the selection of the largest entries."""

import numpy as np
import pytest

from services.compressors.encoding import largest_entries
from services.compressors.encoding.bit_packing import BitPlanes, count_packed_bytes, count_set_bits
from services.compressors.encoding.blocks import list_bucket_blocks
from services.compressors.encoding.largest_entries import find_largest_entries
from services.compressors.encoding.levels import compute_steps, round_to_levels
from services.schema.arrays import HostArray


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("size", [1, 8, 1000, 40_003])
def test_numbers_of_any_width_are_packed_and_unpacked(bits: int, size: int) -> None:
    """The last byte of a plane may be incomplete; blocks must not overwrite their neighbours."""
    numbers = np.random.default_rng(bits).integers(0, 1 << bits, size, dtype="uint8")
    packed = np.full(bits * count_packed_bytes(size), 0xAA, "uint8")
    planes = BitPlanes(packed, bits)
    blocks = list(list_bucket_blocks(numbers, 16))
    for block in blocks:
        planes.write_block(block, numbers[block.entries])

    assert np.array_equal(np.concatenate([planes.read_block(block) for block in blocks]), numbers)


def test_set_bits_of_every_byte_are_counted() -> None:
    """The means of 1-bit SGD divide by these numbers."""
    rows = np.arange(256, dtype="uint8").reshape(256, 1)

    assert count_set_bits(rows).tolist() == [value.bit_count() for value in range(256)]
    assert count_set_bits(np.full((1, 5000), 255, "uint8")).tolist() == [40_000]


@pytest.mark.parametrize("levels", [1, 7, 127])
@pytest.mark.parametrize("offset", [-(1 << 15), (1 << 15) - 1])
def test_no_level_exceeds_the_largest_one(levels: int, offset: int) -> None:
    """Level 128 would become -128: the largest entry of a bucket would change its sign."""
    peaks = np.random.default_rng(levels).uniform(0, 1, 10_000).astype("float32") ** 9
    rows = np.stack([peaks, -peaks], axis=1)

    with np.errstate(divide="ignore", invalid="ignore"):
        rounded = round_to_levels(rows, compute_steps(peaks, levels), np.full(rows.size, offset, "int16"))

    assert abs(rounded.astype(int)).max() == levels
    assert (rounded.reshape(-1, 2)[:, 0] >= 0).all()
    assert (rounded.reshape(-1, 2)[:, 1] <= 0).all()


def test_steps_of_tiny_and_of_huge_buckets_are_numbers() -> None:
    """The inverse of a tiny step is infinite in fp32; such a bucket counts as zero."""
    peaks = np.array([0, 1e-45, 1e-31, 1e-30, 3.4e38, np.inf, np.nan], "float32")

    with np.errstate(all="ignore"):
        steps = compute_steps(peaks, 127)

    assert steps[:3].tolist() == [0, 0, 0]
    assert (steps[3:5] > 0).all()
    assert np.isfinite(steps[:5]).all()
    assert np.isnan(steps[5:]).all()


def expected_positions(vector: HostArray, count: int) -> HostArray:
    """Return the positions of the largest magnitudes by a stable sort; NaN first."""
    magnitudes = np.where(np.isnan(vector), np.inf, abs(vector.astype("float64")))
    return np.sort(np.lexsort((np.arange(vector.size), -magnitudes, ~np.isnan(vector)))[:count])


LONG = 1 << 17
LONG_VECTORS = {
    "normal": np.random.default_rng(1).standard_normal(LONG),
    "heavy tails": np.random.default_rng(2).standard_normal(LONG) ** 9,
    "equal": np.ones(LONG),
    "few values": np.random.default_rng(3).integers(-3, 4, LONG).astype("float64"),
    "zeros": np.zeros(LONG),
    "mostly zeros": np.where(np.arange(LONG) % 1000 == 5, 1.0 + np.arange(LONG), 0),
    "not in the sample": np.where(np.arange(LONG) % 7 == 5, 100.0 + np.arange(LONG), np.arange(LONG) / LONG),
    "one range": np.where(np.arange(LONG) < 2000, 5.0 + np.arange(LONG), -1.0),
    "not finite": np.where(np.arange(LONG) % 999 == 0, np.nan, np.where(np.arange(LONG) % 998 == 0, -np.inf, 1.0)),
}


@pytest.mark.parametrize("vector", LONG_VECTORS.values(), ids=LONG_VECTORS)
@pytest.mark.parametrize("count", [1, 130, 1310, 13_107, 65_536, LONG - 1, LONG])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_selection_finds_exactly_the_largest_entries(vector: HostArray, count: int, dtype: str) -> None:
    """The sample determines only the time. A payload with one entry more would not have the planned size."""
    x = vector.astype(dtype)

    from_all = find_largest_entries(x, count, uses_sample=False)
    from_sample = find_largest_entries(x, count, uses_sample=True)

    assert from_sample.dtype == np.uint32
    assert np.array_equal(from_all, expected_positions(x, count))
    assert np.array_equal(from_sample, from_all)


def test_selection_from_a_sample_reads_few_entries_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The selection would otherwise cost as much as one among all entries."""
    sizes: list[int] = []
    select = largest_entries._select_largest
    monkeypatch.setattr(
        largest_entries, "_select_largest", lambda bits, count: sizes.append(bits.size) or select(bits, count)
    )

    find_largest_entries(LONG_VECTORS["normal"], 1310, uses_sample=True)

    assert 1310 <= sizes[0] < 2 * 1310
