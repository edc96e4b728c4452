"""Comparisons of times: paired by seed, adjusted for their number, and checked for implausibly fast learning."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import ttest_ind, ttest_rel, wilcoxon

from analysis.statistics.convergence_check import compare_convergence
from analysis.statistics.holm import holm_adjust
from analysis.statistics.paired_comparison import compare_times_by_seed

P_VALUES = arrays(float, st.integers(1, 8), elements=st.floats(0, 1))


@given(p_values=P_VALUES)
def test_holm_keeps_the_order_and_lies_between_no_and_full_correction(p_values: np.ndarray) -> None:
    adjusted = holm_adjust(p_values)

    assert (adjusted >= p_values).all()
    assert (adjusted <= np.minimum(1, p_values * p_values.size) + 1e-12).all()
    assert (np.diff(adjusted[np.argsort(p_values, kind="stable")]) >= 0).all()


def test_holm_gives_the_textbook_numbers() -> None:
    assert holm_adjust(np.array([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_pairing_by_seed_finds_a_difference_that_the_spread_over_seeds_hides() -> None:
    """Seeds differ by 40 %, strategies by 5 %: the unpaired test finds nothing, the paired one is significant."""
    seed_times = np.array([8.0, 10.0, 12.0, 9.0, 11.0])
    our_times, their_times = seed_times, seed_times * np.array([1.05, 1.04, 1.06, 1.05, 1.05])

    comparison = compare_times_by_seed(our_times, their_times)

    assert comparison.ratio == pytest.approx(1.05, abs=0.01)
    assert comparison.p_value == pytest.approx(ttest_rel(np.log(their_times), np.log(our_times)).pvalue)
    assert comparison.p_value < 0.001
    assert ttest_ind(our_times, their_times).pvalue > 0.5
    assert comparison.interval is not None
    assert comparison.interval[0] > 1


def test_missed_runs_count_by_rank() -> None:
    """Two misses of eight; the exact signed-rank test with a rank above all others for each miss."""
    our_times = np.array([5.0, 6, 7, 5, 6, 8, 5, 6])
    their_times = np.array([6.0, 6.5, 7.25, math.inf, 6.125, 7.9, math.inf, 6.8])
    finite = np.where(np.isinf(their_times), [0, 0, 0, 1e6, 0, 0, 2e6, 0], np.log(their_times / our_times))

    comparison = compare_times_by_seed(our_times, their_times)

    assert comparison.missed_runs == (0, 2)
    assert math.isinf(comparison.ratio)
    assert comparison.p_value == pytest.approx(wilcoxon(finite, method="exact").pvalue, abs=0.01)  # misses tie


def test_two_strategies_that_both_miss_do_not_differ() -> None:
    assert compare_times_by_seed(np.full(6, math.inf), np.full(6, math.inf)).p_value == 1


@settings(max_examples=25, deadline=None)
@given(times=arrays(float, (2, 6), elements=st.floats(0.5, 50)))
def test_swapping_the_strategies_inverts_the_ratio(times: np.ndarray) -> None:
    forward, swapped = compare_times_by_seed(*times), compare_times_by_seed(*times[::-1])

    assert forward.ratio == pytest.approx(1 / swapped.ratio)
    assert forward.p_value == pytest.approx(swapped.p_value)


@pytest.mark.parametrize(
    ("our_times", "their_times", "message"), [([1.0], [1.0, 2.0], "paired"), ([0.0], [1.0], "positive")]
)
def test_times_that_cannot_be_paired_are_rejected(
    our_times: list[float], their_times: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        compare_times_by_seed(np.array(our_times), np.array(their_times))


def test_significantly_fewer_samples_than_the_reference_are_suspicious() -> None:
    """The test is one-sided: more samples are never suspicious, nor is a difference within the spread."""
    reference = np.array([1000.0, 1040, 980, 1010, 1020])

    too_good, slower = (
        compare_convergence(0.8 * reference, reference),
        compare_convergence(1.3 * reference, reference),
    )

    assert too_good.converges_too_fast
    assert too_good.p_value == pytest.approx(
        ttest_ind(0.8 * reference, reference, equal_var=False, alternative="less").pvalue
    )
    assert not slower.converges_too_fast
    assert not compare_convergence(reference - 5, reference).converges_too_fast


def test_a_run_that_missed_the_target_is_never_suspicious() -> None:
    assert not compare_convergence(np.array([10.0, math.inf]), np.array([100.0, 101.0])).converges_too_fast


def test_a_reference_must_have_converged_and_been_repeated() -> None:
    with pytest.raises(ValueError, match="missed"):
        compare_convergence(np.array([1.0, 2.0]), np.array([1.0, math.inf]))
    with pytest.raises(ValueError, match="single run"):
        compare_convergence(np.array([1.0]), np.array([1.0, 2.0]))


def test_rounded_times_differ_significantly_no_more_often_than_the_level() -> None:
    """Two equal strategies: half of their runs meet the target at one evaluation, half at the next, a tenth later.

    One pair of eight looks like (10, 10) against (11, 11), which is called certain if rounding is ignored.
    """
    generator = np.random.default_rng(0)
    times = np.ceil(10 * np.exp(0.02 * generator.normal(size=(200, 2, 2))))

    rounded, exact = (
        [compare_times_by_seed(*pair, steps).p_value < 0.05 for pair in times] for steps in ((1.0, 1.0), (0.0, 0.0))
    )

    assert np.mean(rounded) <= 0.05 < np.mean(exact)


def test_equal_runs_are_exact_only_if_they_were_not_rounded() -> None:
    first, second = np.full(2, 4000.0), np.full(2, 5000.0)

    assert compare_times_by_seed(first, second).p_value == compare_convergence(first, second).p_value == 0
    assert compare_times_by_seed(first, second, (1000.0, 1000.0)).p_value > 0.05
    assert compare_convergence(first, second, (1000.0, 1000.0)).p_value > 0.05
