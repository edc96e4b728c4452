"""Range of samples to the target that a reference admits."""

import numpy as np
import pytest
from scipy.stats import ttest_ind

from analysis.statistics.reference_range import ReferenceStatistics, compare_with_reference

REFERENCE = np.array([5000.0, 5200.0, 4900.0, 5400.0, 5100.0, 5300.0, 5000.0, 5250.0])
STATISTICS = ReferenceStatistics.of_runs(REFERENCE, 0.0)


@pytest.mark.parametrize("runs", [[4700.0, 4900.0], [5200.0, 5100.0, 5500.0], [6000.0, 6100.0, 5900.0, 6300.0]])
def test_p_values_are_those_of_the_t_test_with_equal_variances(runs: list[float]) -> None:
    """This is the test of MLCommons' checker."""
    found = compare_with_reference(np.array(runs), STATISTICS)

    assert found.fewer.p_value == pytest.approx(ttest_ind(runs, REFERENCE, alternative="less").pvalue)
    assert found.p_more == pytest.approx(ttest_ind(runs, REFERENCE, alternative="greater").pvalue)


def test_a_single_run_is_compared_with_the_spread_of_the_reference() -> None:
    """Student's t of one new value: (x - mean) / (s·√(1 + 1/n)), with n - 1 degrees of freedom."""
    found = compare_with_reference(np.array([4500.0]), STATISTICS)

    half_width = 1.8946 * REFERENCE.std(ddof=1) * np.sqrt(1 + 1 / 8)
    assert (found.low, found.high) == pytest.approx(
        (REFERENCE.mean() - half_width, REFERENCE.mean() + half_width), rel=1e-4
    )
    assert found.fewer.converges_too_fast
    assert not compare_with_reference(np.array([found.low + 1]), STATISTICS).fewer.converges_too_fast
    assert compare_with_reference(np.array([found.low - 1]), STATISTICS).fewer.converges_too_fast


@pytest.mark.parametrize("run_count", [1, 2, 3, 5])
def test_unchanged_runs_are_suspicious_in_one_of_twenty_cases(run_count: int) -> None:
    """A user whose training is right must not get the advice to look for a bug more often."""
    rng = np.random.default_rng(run_count)
    suspicious = 0
    for _ in range(4000):
        reference = ReferenceStatistics.of_runs(rng.normal(5000, 200, 10), 0.0)
        suspicious += compare_with_reference(rng.normal(5000, 200, run_count), reference).fewer.converges_too_fast

    assert suspicious / 4000 == pytest.approx(0.05, abs=0.012)


@pytest.mark.parametrize("run_count", [1, 3])
def test_rounding_to_evaluations_does_not_make_runs_suspicious(run_count: int) -> None:
    """Samples are known up to one evaluation: all reference runs may end at one, and a trial at the one before."""
    rng, interval, suspicious = np.random.default_rng(1), 1000.0, 0
    for _ in range(2000):
        reference_runs, runs = (
            np.ceil(rng.normal(5450, 150, count) / interval) * interval for count in (10, run_count)
        )
        reference = ReferenceStatistics.of_runs(reference_runs, interval)
        suspicious += compare_with_reference(runs, reference).fewer.converges_too_fast

    assert suspicious / 2000 < 0.06


def test_equal_reference_runs_have_the_spread_of_their_rounding() -> None:
    """Without it, a run that reached the target one sample earlier would be suspicious."""
    statistics = ReferenceStatistics.of_runs(np.full(5, 4000.0), 1000.0)

    assert statistics.standard_deviation == pytest.approx(1000 / np.sqrt(12))
    assert not compare_with_reference(np.array([3900.0]), statistics).fewer.converges_too_fast
    assert compare_with_reference(np.array([2000.0]), statistics).fewer.converges_too_fast


def test_interpolated_statistics_lie_between_those_of_the_neighbours() -> None:
    """MLCommons interpolates mean and standard deviation linearly in the batch."""
    small, large = ReferenceStatistics(4000.0, 100.0, 10), ReferenceStatistics(8000.0, 300.0, 6)

    assert small.interpolate(large, 0.25) == ReferenceStatistics(5000.0, 150.0, 6)
    assert small.interpolate(large, 0.0).mean == 4000.0


@pytest.mark.parametrize("runs", [[5000.0], [5000.0, np.inf]])
def test_a_reference_needs_repeats_that_reached_the_target(runs: list[float]) -> None:
    with pytest.raises(ValueError, match="two runs or more, all of which reached the target"):
        ReferenceStatistics.of_runs(np.array(runs), 0.0)


@pytest.mark.parametrize(("mean", "deviation", "least"), [(15.75, 0.43, 15.21), (20.75, 0.66, 19.93)])
def test_the_worked_examples_of_mlcommons_have_the_same_limits(mean: float, deviation: float, least: float) -> None:
    """Ten reference runs and five submitted runs, of which the olympic mean drops two on each side (epochs)."""
    submitted = mean + deviation * np.array([-1.0, 0.0, 1.0])

    found = compare_with_reference(submitted, ReferenceStatistics(mean, deviation, 8))

    assert found.low == pytest.approx(least, abs=0.01)
