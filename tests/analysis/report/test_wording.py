"""Formatting of numbers in reports."""

import math

import pytest

from analysis.report.wording import format_number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.1, "2.10"),
        (12.34, "12.3"),
        (1180, "1,180"),
        (0, "0"),
        (0.00123, "0.00123"),
        (1.02e-12, "1.02e-12"),
        (-3.5e-7, "-3.50e-07"),
        (math.inf, "–"),
        (None, "–"),
    ],
)
def test_a_number_has_three_digits_and_no_row_of_zeros(value: float | None, text: str) -> None:
    """The zeros of 0.00000000000102 are hard to count."""
    assert format_number(value) == text
