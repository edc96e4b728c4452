"""Confidence intervals: their coverage, both sides of a ratio, and runs that missed their target."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import bootstrap

from analysis.statistics.bootstrap import BOOTSTRAP_DRAWS, confidence_interval, ratio_interval, resample_olympic_means
from analysis.statistics.centre import median_of_maybe_infinite, olympic_mean

TIMES = arrays(float, st.integers(2, 8), elements=st.floats(0.5, 50))


def is_sensitive_to_single_runs(runs: np.ndarray) -> bool:
    """Whether leaving out a run changes the mean; an olympic mean ignores a run that alone is lowest."""
    return bool(np.ptp([olympic_mean(np.delete(runs, index)) for index in range(runs.size)]) > 1e-9)


@settings(max_examples=20, deadline=None)
@given(values=TIMES, factor=st.floats(0.1, 10))
@example(values=np.array([1.0, *[1.54184539] * 5]), factor=0.1015625)
def test_an_interval_lies_within_the_runs_and_scales_with_their_unit(values: np.ndarray, factor: float) -> None:
    interval = confidence_interval(values)
    in_other_units = confidence_interval(values * factor)

    assert interval is not None
    assert in_other_units is not None
    assert values.min() - 1e-9 <= interval[0] <= interval[1] <= values.max() + 1e-9
    assert in_other_units == pytest.approx(tuple(end * factor for end in interval))


@settings(max_examples=20, deadline=None)
@given(values=TIMES)
def test_a_strategy_compared_with_itself_is_exactly_as_fast(values: np.ndarray) -> None:
    """Paired by seed, the effect of the seed cancels."""
    assert ratio_interval(values, values, paired=True) == pytest.approx((1, 1))


@settings(max_examples=40, deadline=None)
@given(above=TIMES, below=TIMES, paired=st.booleans())
def test_intervals_equal_those_of_scipy(above: np.ndarray, below: np.ndarray, *, paired: bool) -> None:
    """Paired and unpaired, wherever BCa is defined."""
    below = np.resize(below, above.size) if paired else below
    assume(is_sensitive_to_single_runs(above) and is_sensitive_to_single_runs(below))
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        scipy_interval = bootstrap(
            (above, below), lambda x, y, axis: olympic_mean(x) / olympic_mean(y),
            n_resamples=BOOTSTRAP_DRAWS, paired=paired, vectorized=True, method="BCa", rng=np.random.default_rng(0),
        ).confidence_interval  # fmt: skip
    assume(np.isfinite(scipy_interval).all())

    assert ratio_interval(above, below, paired=paired) == pytest.approx(tuple(scipy_interval), rel=1e-12)


def test_the_interval_of_a_ratio_has_its_nominal_coverage() -> None:
    """Ten runs a side at 10 % spread, 150 times; bootstraps of ten runs cover a little less than 95 %."""
    generator = np.random.default_rng(1)
    runs = np.exp(0.1 * generator.standard_normal((150, 2, 10)))

    intervals = [ratio_interval(2 * base, our_times) for base, our_times in runs]

    assert 0.88 <= np.mean([low <= 2 <= high for low, high in filter(None, intervals)]) <= 0.99


def test_both_sides_of_a_ratio_widen_its_interval() -> None:
    spread, exact = np.array([9.0, 10.0, 10.5, 11.0, 9.5]), np.full(5, 10.0)

    spread_on_both_sides, spread_above = ratio_interval(spread, spread[::-1]), ratio_interval(spread, exact)

    assert spread_on_both_sides is not None
    assert spread_above is not None
    assert spread_on_both_sides[1] - spread_on_both_sides[0] > 1.2 * (spread_above[1] - spread_above[0])


def test_runs_of_the_same_seeds_are_resampled_together() -> None:
    """A fast seed is fast for both strategies: resampled as pairs their ratio does not vary, otherwise it does."""
    base = np.array([8.0, 10.0, 13.0, 9.0, 11.0])

    as_pairs, independently = (resample_olympic_means([base, base / 2], paired=paired) for paired in (True, False))

    assert np.allclose(as_pairs[:, 0] / as_pairs[:, 1], 2)
    assert np.ptp(independently[:, 0] / independently[:, 1]) > 0.5


def test_a_missed_run_makes_the_upper_end_infinite() -> None:
    """Of four runs the olympic mean drops one miss; a resample may contain two."""
    low, high = confidence_interval(np.array([1.0, 2.0, 3.0, math.inf])) or (0.0, 0.0)

    assert 1 <= low < 3
    assert math.isinf(high)


def test_a_single_run_has_no_interval() -> None:
    assert confidence_interval(np.array([3.0])) is None
    assert ratio_interval(np.array([3.0]), np.array([1.0])) is None
    assert ratio_interval(np.array([3.0]), np.array([1.0, 2.0, 1.5])) is not None


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
