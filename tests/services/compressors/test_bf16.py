"""Rounding and special values of bfloat16."""

import numpy as np

from services.compressors import Bf16
from services.schema.arrays import HostArray


def round_trip(x: HostArray) -> HostArray:
    payload, _ = Bf16().compress(x, None)
    decompressed: HostArray = Bf16().decompress(payload)
    return decompressed


def test_every_number_of_bfloat16_stays_what_it_is() -> None:
    """Totals are compressed again when they are passed on; all replicas must keep the same bits."""
    every = (np.arange(1 << 16, dtype="uint32") << 16).view("float32")
    numbers = every[~np.isnan(every)]

    assert round_trip(numbers).tobytes() == numbers.tobytes()


def test_ties_are_rounded_to_even_and_other_values_to_the_nearest() -> None:
    """Truncation would shrink every gradient by up to 2⁻⁷."""
    lower = np.array([0x3F807FFF, 0x3F808000, 0x3F808001, 0x3F817FFF, 0x3F818000, 0x3F818001], "uint32")

    rounded = round_trip(lower.view("float32")).view("uint32") >> 16

    assert rounded.tolist() == [0x3F80, 0x3F80, 0x3F81, 0x3F81, 0x3F82, 0x3F82]


def test_nan_of_any_bits_stays_nan_and_infinity_stays_infinity() -> None:
    """The carry of rounding would turn some bits of NaN into infinity or zero."""
    bits = np.array([0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF, 0x7F800000, 0xFF800000], "uint32")

    decompressed = round_trip(bits.view("float32"))

    assert np.isnan(decompressed[:5]).all()
    assert decompressed[5:].tolist() == [np.inf, -np.inf]


def test_values_beyond_the_range_become_infinite() -> None:
    """As fp32 would round them: nothing is clipped."""
    largest = np.array([np.finfo("float32").max, -np.finfo("float32").max], "float32")

    assert round_trip(largest).tolist() == [np.inf, -np.inf]
