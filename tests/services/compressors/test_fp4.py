"""Rounding, range and bytes of floating-point numbers of four bits."""

import numpy as np
import pytest

from services.compressors import Fp4
from services.compressors.floating_point.fp4 import NUMBERS
from services.schema.arrays import HostArray


def round_trip(x: HostArray) -> HostArray:
    payload, _ = Fp4().compress(x, None)
    decompressed: HostArray = Fp4().decompress(payload)
    return decompressed


@pytest.mark.parametrize("scale", [1.0, 3e-20, 7e30])
def test_entries_are_rounded_to_the_nearest_number(scale: float) -> None:
    """Any other choice would have a larger error; the docstring states the error of the nearest number."""
    x = (scale * np.append(np.random.default_rng(3).uniform(-1, 1, 5000), [1.0])).astype("float32")

    decompressed = round_trip(x[-1000:])

    numbers = scale * np.array(NUMBERS)
    nearest = numbers[abs(x[-1000:, None] - numbers).argmin(axis=1)]
    np.testing.assert_allclose(decompressed, nearest, rtol=1e-6)


def test_numbers_of_the_format_stay_what_they_are() -> None:
    """Fifteen different numbers have codes: zero, and seven magnitudes of both signs."""
    numbers = np.array(NUMBERS, "float32")

    np.testing.assert_allclose(round_trip(numbers), numbers, rtol=1e-6)
    assert len(set(NUMBERS)) == 15


def test_entries_far_below_the_largest_become_zero() -> None:
    """The smallest magnitude is 2⁻⁶ of the scale; entries below half of it are nearer to zero."""
    assert round_trip(np.array([1.0, 0.0079, 0.0078, -0.0078], "float32"))[1:].tolist() == pytest.approx(
        [2.0**-6, 0, 0], rel=1e-6
    )


def test_an_entry_takes_four_bits_and_a_bucket_four_bytes() -> None:
    """Bytes of messages are predicted from these sizes; the last bucket may be shorter."""
    assert Fp4().compressed_size_bytes(1 << 20, "float32") == (1 << 19) + 4 * 1024
    assert Fp4().compressed_size_bytes(1025, "float32") == 4 * 129 + 4 * 2
