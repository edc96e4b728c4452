"""Formatting of numbers in reports."""

import math

import pytest

from analysis.report.wording import MAX_TITLE_LENGTH, format_number, format_trial_names, split_long_sentence


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


def test_the_title_of_a_report_has_the_clauses_that_fit() -> None:
    """A paragraph in large letters is not read; what does not fit follows as a sentence."""
    short = "with link 10mbit, ring is fastest; with link 1gbit, ps is fastest."
    long = f"{short.removesuffix('.')}; {'a' * MAX_TITLE_LENGTH}; the final mae is 0.36."

    assert split_long_sentence(short) == (short, "")
    assert split_long_sentence(long) == (short, f"A{'a' * (MAX_TITLE_LENGTH - 1)}; the final mae is 0.36.")


def test_the_title_of_a_report_has_no_open_bracket() -> None:
    """The finding on a switch has a semicolon in brackets."""
    first = f"{'a' * MAX_TITLE_LENGTH} (the median of 5 repeats; it paid in 3 of 5)"

    assert split_long_sentence(f"{first}; ps alone is faster.") == (f"{first}.", "Ps alone is faster.")


def test_a_first_clause_that_is_too_long_is_the_title_all_the_same() -> None:
    """A sentence is not cut within a clause."""
    assert split_long_sentence(f"{'a' * 300}; b.") == (f"{'a' * 300}.", "B.")
