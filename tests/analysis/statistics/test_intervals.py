"""Confidence intervals: agreement with SciPy and with the paired test, both sides of a ratio, and missed targets.

`test_coverage` simulates how often they contain the true value.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import ttest_1samp, ttest_ind

from analysis.statistics.centre import median_of_maybe_infinite, olympic_mean
from analysis.statistics.intervals import confidence_interval, draw_mean_times, percentile_interval, ratio_interval
from analysis.statistics.paired_comparison import compare_times_by_seed

TIMES = arrays(float, st.integers(2, 8), elements=st.floats(0.5, 50))
SPREAD = np.array([8.0, 10.0, 13.0, 9.0, 11.0])


def test_intervals_equal_those_of_scipy_for_log_times() -> None:
    """One group, pairs, and two groups with unequal spreads (Welch)."""
    other = np.array([5.0, 4.0, 4.6, 5.2])
    one = ttest_1samp(np.log(SPREAD), 0).confidence_interval()
    pairs = ttest_1samp(np.log(SPREAD[:4] / other), 0).confidence_interval()
    welch = ttest_ind(np.log(SPREAD), np.log(other), equal_var=False).confidence_interval()

    assert confidence_interval(SPREAD) == pytest.approx(tuple(np.exp(one)))
    assert ratio_interval(SPREAD[:4], other, paired=True) == pytest.approx(tuple(np.exp(pairs)))
    assert ratio_interval(SPREAD, other) == pytest.approx(tuple(np.exp(welch)))


@settings(max_examples=20, deadline=None)
@given(values=TIMES, factor=st.floats(0.1, 10))
def test_an_interval_contains_the_geometric_mean_and_scales_with_the_unit(values: np.ndarray, factor: float) -> None:
    interval = confidence_interval(values)
    in_other_units = confidence_interval(values * factor)

    assert interval is not None
    assert interval[0] * (1 - 1e-9) <= np.exp(np.log(values).mean()) <= interval[1] * (1 + 1e-9)
    assert in_other_units == pytest.approx(tuple(end * factor for end in interval))


@settings(max_examples=40, deadline=None)
@given(times=arrays(float, (2, 5), elements=st.floats(0.5, 50)), step=st.sampled_from([0.0, 0.25]))
def test_an_interval_contains_one_where_the_paired_test_finds_no_difference(times: np.ndarray, step: float) -> None:
    """Interval and p-value are printed side by side, so they must not contradict each other."""
    comparison = compare_times_by_seed(*times, (step, step))

    assert comparison.interval is not None
    low, high = comparison.interval
    if abs(comparison.p_value - 0.05) > 1e-6:
        assert (low <= 1 <= high) == (comparison.p_value > 0.05)


@settings(max_examples=20, deadline=None)
@given(values=TIMES)
def test_a_strategy_compared_with_itself_is_exactly_as_fast(values: np.ndarray) -> None:
    """Paired by seed, the effect of the seed cancels."""
    assert ratio_interval(values, values, paired=True) == pytest.approx((1, 1))


def test_both_sides_of_a_ratio_widen_its_interval() -> None:
    exact = np.full(5, 10.0)

    (low_of_both, high_of_both), (low, high) = (ratio_interval(SPREAD, each) or () for each in (SPREAD[::-1], exact))

    assert high_of_both - low_of_both > 1.1 * (high - low)


def test_means_of_the_same_seeds_are_drawn_together() -> None:
    """A fast seed is fast for both strategies: drawn as pairs their ratio does not vary, otherwise it does."""
    as_pairs, independently = (
        draw_mean_times([SPREAD, SPREAD / 2], paired=paired, rounding_steps=[0.0, 0.0]) for paired in (True, False)
    )

    assert as_pairs is not None
    assert independently is not None
    assert np.allclose(as_pairs[:, 0] / as_pairs[:, 1], 2)
    assert np.ptp(independently[:, 0] / independently[:, 1]) > 0.5


@pytest.mark.parametrize("step", [0.0, 4.0])
def test_the_central_draws_of_a_mean_are_its_interval(step: float) -> None:
    """Rounding adds to the spread of the draws; the interval uses the larger of the two."""
    draws, interval = draw_mean_times([SPREAD], paired=False, rounding_steps=[step]), confidence_interval(SPREAD, step)

    assert draws is not None
    assert interval is not None
    low, high = percentile_interval(draws[:, 0])
    assert low < 1.03 * interval[0]
    assert high > 0.97 * interval[1]
    assert step or (low, high) == pytest.approx(interval, rel=0.03)


def test_times_that_were_rounded_to_the_same_evaluation_are_not_exact() -> None:
    equal = np.full(5, 10.0)

    assert confidence_interval(equal) == pytest.approx((10, 10))
    low, high = confidence_interval(equal, 2.0) or (0.0, 0.0)
    assert low < 9
    assert high > 11


@pytest.mark.parametrize("times", [[3.0], [1.0, 2.0, 3.0, math.inf]])
def test_a_single_run_or_a_missed_target_gives_no_interval(times: list[float]) -> None:
    """One run has no spread, and the time of a run that missed its target is unknown."""
    runs, others = np.array(times), np.array([1.0, 2.0, 1.5])

    assert confidence_interval(runs) is None
    assert ratio_interval(runs, others) is ratio_interval(others, runs) is None
    assert draw_mean_times([others, runs], paired=False, rounding_steps=[0.0, 0.0]) is None


def test_the_median_ranks_missed_runs_last() -> None:
    assert median_of_maybe_infinite(np.array([3.0, math.inf, 1.0])) == 3
    assert math.isinf(median_of_maybe_infinite(np.array([1.0, math.inf])))
    assert olympic_mean(np.array([3.0, math.inf, 1.0])) == 3


@given(values=arrays(float, st.integers(9, 40), elements=st.floats(0.5, 50)))
def test_the_olympic_mean_drops_the_requested_number_of_runs_per_side(values: np.ndarray) -> None:
    """MLPerf drops four of the forty runs of 3D U-Net."""
    ranked = np.sort(values)

    assert olympic_mean(values, dropped_per_side=4) == pytest.approx(ranked[4:-4].mean())
    assert olympic_mean(values[:8], dropped_per_side=4) == pytest.approx(values[:8].mean())
