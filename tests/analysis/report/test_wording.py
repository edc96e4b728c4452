"""Formatting of numbers in reports."""

import math

import pytest

from analysis.report.wording import format_number, format_trial_names


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


@pytest.mark.parametrize(
    ("names", "text"),
    [(("a",), "a"), (("a", "b", "c"), "a, b, c"), (("a", "b", "c", "d"), "a and 3 others"), (tuple("abcde"), "all")],
)
def test_a_cell_lists_at_most_three_trials(names: tuple[str, ...], text: str) -> None:
    """A run may have hundreds of trials."""
    assert format_trial_names(names, 5) == text


def test_the_only_trial_of_a_run_is_named() -> None:
    """The word "all" would not say which trial it is."""
    assert format_trial_names(("000-ring-w2-r0",), 1) == "000-ring-w2-r0"
