"""Comparisons: paired by seed, adjusted for their number, and suspicious of who learns too fast."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import ttest_ind, ttest_rel, wilcoxon

from analysis.statistics.convergence_check import compare_samples_with_reference
from analysis.statistics.holm import holm_adjust
from analysis.statistics.paired_comparison import compare_paired_times

CHANCES = arrays(float, st.integers(1, 8), elements=st.floats(0, 1))


@given(chances=CHANCES)
def test_holm_keeps_the_order_and_lies_between_no_and_full_correction(chances: np.ndarray) -> None:
    adjusted = holm_adjust(chances)

    assert (adjusted >= chances).all()
    assert (adjusted <= np.minimum(1, chances * chances.size) + 1e-12).all()
    assert (np.diff(adjusted[np.argsort(chances, kind="stable")]) >= 0).all()


def test_holm_gives_the_textbook_numbers() -> None:
    assert holm_adjust(np.array([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_pairs_of_seeds_see_what_spread_over_seeds_hides() -> None:
    """Seeds differ by 40 %, strategies by 5 %: unpaired nothing shows, paired it is plain."""
    luck = np.array([8.0, 10.0, 12.0, 9.0, 11.0])
    ours, theirs = luck, luck * np.array([1.05, 1.04, 1.06, 1.05, 1.05])

    found = compare_paired_times(ours, theirs)

    assert found.ratio == pytest.approx(1.05, abs=0.01)
    assert found.p_value == pytest.approx(ttest_rel(np.log(theirs), np.log(ours)).pvalue)
    assert found.p_value < 0.001
    assert ttest_ind(ours, theirs).pvalue > 0.5
    assert found.interval is not None
    assert found.interval[0] > 1


def test_missed_runs_count_by_rank() -> None:
    """Two misses of eight; the exact signed-rank test with a rank above all others for each miss."""
    ours = np.array([5.0, 6, 7, 5, 6, 8, 5, 6])
    theirs = np.array([6.0, 6.5, 7.25, math.inf, 6.125, 7.9, math.inf, 6.8])
    finite = np.where(np.isinf(theirs), [0, 0, 0, 1e6, 0, 0, 2e6, 0], np.log(theirs / ours))

    found = compare_paired_times(ours, theirs)

    assert found.missed_runs == (0, 2)
    assert math.isinf(found.ratio)
    assert found.p_value == pytest.approx(wilcoxon(finite, method="exact").pvalue, abs=0.01)  # misses tie


def test_two_strategies_that_both_miss_are_not_told_apart() -> None:
    assert compare_paired_times(np.full(6, math.inf), np.full(6, math.inf)).p_value == 1


@settings(max_examples=25, deadline=None)
@given(times=arrays(float, (2, 6), elements=st.floats(0.5, 50)))
def test_who_is_called_ours_only_turns_the_ratio_round(times: np.ndarray) -> None:
    there, back = compare_paired_times(*times), compare_paired_times(*times[::-1])

    assert there.ratio == pytest.approx(1 / back.ratio)
    assert there.p_value == pytest.approx(back.p_value)


@pytest.mark.parametrize(("ours", "theirs", "why"), [([1.0], [1.0, 2.0], "paired"), ([0.0], [1.0], "positive")])
def test_what_cannot_be_paired_is_refused(ours: list[float], theirs: list[float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        compare_paired_times(np.array(ours), np.array(theirs))


def test_needing_significantly_fewer_samples_is_a_reason_to_look_for_a_bug() -> None:
    """The test is one-sided, so needing more is never suspicious, nor is a difference within the spread."""
    reference = np.array([1000.0, 1040, 980, 1010, 1020])

    too_good, slower = (
        compare_samples_with_reference(0.8 * reference, reference),
        compare_samples_with_reference(1.3 * reference, reference),
    )

    assert (too_good.is_suspicious, too_good.advice) == (True, "check for a bug")
    assert too_good.p_value == pytest.approx(
        ttest_ind(0.8 * reference, reference, equal_var=False, alternative="less").pvalue
    )
    assert not slower.is_suspicious
    assert not compare_samples_with_reference(reference - 5, reference).is_suspicious


def test_a_run_that_missed_is_never_too_good() -> None:
    assert not compare_samples_with_reference(np.array([10.0, math.inf]), np.array([100.0, 101.0])).is_suspicious


def test_a_reference_must_have_converged_and_been_repeated() -> None:
    with pytest.raises(ValueError, match="missed"):
        compare_samples_with_reference(np.array([1.0, 2.0]), np.array([1.0, math.inf]))
    with pytest.raises(ValueError, match="single run"):
        compare_samples_with_reference(np.array([1.0]), np.array([1.0, 2.0]))


def test_rounded_times_are_told_apart_as_seldom_as_the_test_says() -> None:
    """Two alike whose target lies at an evaluation: half of their runs meet it there, half at the next, a tenth later.

    One pair of eight looks like (10, 10) against (11, 11), which without its rounding is taken for certain.
    """
    generator = np.random.default_rng(0)
    times = np.ceil(10 * np.exp(0.02 * generator.normal(size=(200, 2, 2))))

    rounded, exact = (
        [compare_paired_times(*each, steps).p_value < 0.05 for each in times] for steps in ((1.0, 1.0), (0.0, 0.0))
    )

    assert np.mean(rounded) <= 0.05 < np.mean(exact)


def test_equal_runs_are_exact_only_where_nothing_was_rounded() -> None:
    ours, theirs = np.full(2, 4000.0), np.full(2, 5000.0)

    assert compare_paired_times(ours, theirs).p_value == compare_samples_with_reference(ours, theirs).p_value == 0
    assert compare_paired_times(ours, theirs, (1000.0, 1000.0)).p_value > 0.05
    assert compare_samples_with_reference(ours, theirs, (1000.0, 1000.0)).p_value > 0.05
