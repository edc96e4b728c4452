"""Speedup, its factors and balance points on numbers that can be checked by hand."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from analysis.metrics.speedup import speedup_curves
from analysis.reading.run_table import TrialLogTables
from analysis.results.measure_trial import measure_trial
from analysis.results.trial_group import group_trials
from analysis.results.trial_result import TrialResult
from analysis.statistics.worker_count_rules import (
    find_index_of_min_workers_time_squared,
    find_last_efficient_index,
    find_speedup_knee_index,
)

MakeTrial = Callable[..., TrialLogTables]


@pytest.fixture
def result(make_trial: MakeTrial) -> TrialResult:
    """A finished trial to vary."""
    return replace(
        measure_trial(make_trial({}), []), status="success", samples=1000, seconds=10.0, samples_per_second=100.0
    )


@pytest.fixture
def trial_of(result: TrialResult) -> Callable[..., TrialResult]:
    """trial_of("ring", 4, seconds=5) returns a trial that reached its target after these seconds."""

    def make(strategy: str, workers: int, seconds: float | None, samples: int = 1000, **changes: Any) -> TrialResult:
        reached = {"time_to_target_s": seconds, "samples_to_target": samples if seconds else None}
        rate = {"samples_per_second": samples / (seconds or 10.0)}
        named = {"strategy": strategy, "workers": workers, "baseline": strategy == "baseline"}
        return replace(result, **(named | reached | rate | changes))

    return make


def test_efficiency_is_the_product_of_hardware_and_statistics(trial_of: Callable[..., TrialResult]) -> None:
    trials = [trial_of("baseline", 1, 10), trial_of("asp", 4, 5, samples=1600, servers=1)]

    (curve,) = speedup_curves(group_trials(trials))
    (point,) = curve.points

    assert (curve.of, curve.base.workers, curve.base.seconds) == ("time_to_target", 1, 10)
    assert point.speedup == pytest.approx(2)  # 10 s / 5 s
    assert point.efficiency == pytest.approx(0.5)  # 2 / 4
    assert point.statistical_efficiency == pytest.approx(0.625)  # 1000 / 1600 samples
    assert point.hardware_efficiency == pytest.approx(0.8)  # (320/s) / (100/s) / 4
    assert point.efficiency_with_servers == pytest.approx(0.4)  # 2 / (4 + 1)
    assert point.speedup_ci is None


def test_without_a_baseline_the_smallest_number_of_workers_is_the_base(trial_of: Callable[..., TrialResult]) -> None:
    (curve,) = speedup_curves(group_trials([trial_of("ring", 8, 3), trial_of("ring", 2, 6)]))

    assert (curve.base.strategy, curve.base.workers) == ("ring", 2)
    assert [(point.workers, point.speedup, point.efficiency) for point in curve.points] == [(2, 1, 1), (8, 2, 0.5)]


def test_a_missed_target_falls_back_to_the_common_sample_budget(trial_of: Callable[..., TrialResult]) -> None:
    trials = [trial_of("baseline", 1, 10), trial_of("asp", 2, None, samples_per_second=150.0)]

    (curve,) = speedup_curves(group_trials(trials))

    assert curve.of == "time_to_samples"
    assert curve.points[0].speedup == pytest.approx(1.5)
    assert curve.points[0].statistical_efficiency is None


def test_failed_trials_are_excluded_from_speedup_curves(trial_of: Callable[..., TrialResult]) -> None:
    assert speedup_curves(group_trials([trial_of("baseline", 1, 10), trial_of("ring", 2, 5, status="failed")])) == ()


def test_conditions_are_compared_with_their_own_base(trial_of: Callable[..., TrialResult]) -> None:
    trials = [
        trial_of(strategy, workers, seconds, condition=condition, labels={"link": condition})
        for condition, slow, fast in (("10mbit", 20, 10), ("1gbit", 12, 3))
        for strategy, workers, seconds in (("baseline", 1, slow), ("ring", 4, fast))
    ]

    assert {curve.condition: curve.points[0].speedup for curve in speedup_curves(group_trials(trials))} == {
        "10mbit": 2,
        "1gbit": 4,
    }


def test_a_baseline_is_the_base_of_conditions_on_keys_that_it_lacks(trial_of: Callable[..., TrialResult]) -> None:
    """A single worker has no servers to sweep, yet every number of servers is compared with it."""
    trials = [trial_of("baseline", 1, 10), trial_of("ps", 4, 5, condition="servers 2", labels={"servers": 2})]

    (curve,) = speedup_curves(group_trials(trials))

    assert (curve.base.strategy, curve.points[0].speedup) == ("baseline", 2)


def test_repeats_give_an_interval_around_the_speedup(trial_of: Callable[..., TrialResult]) -> None:
    trials = [
        trial_of(strategy, workers, seconds * noise, repeat=repeat)
        for strategy, workers, seconds in (("baseline", 1, 10), ("ring", 4, 4))
        for repeat, noise in enumerate((0.9, 1.0, 1.1))
    ]

    point = speedup_curves(group_trials(trials))[0].points[0]

    assert point.runs == 3
    assert point.speedup == pytest.approx(2.5)
    assert point.speedup_ci[0] < 2.5 < point.speedup_ci[1]


def test_efficiency_of_unequal_nodes_is_relative_to_the_sum_of_their_speeds(
    trial_of: Callable[..., TrialResult],
) -> None:
    trials = [
        trial_of("baseline", 1, 10, declared_samples_per_second=4000.0),
        trial_of("ring", 2, 8, declared_samples_per_second=6000.0),  # one full, one half as fast
    ]

    assert speedup_curves(group_trials(trials))[0].points[0].efficiency_by_speed == pytest.approx(1.25 / 1.5)


WORKERS = np.array([1.0, 2.0, 4.0, 8.0])


@pytest.mark.parametrize(
    ("speedup", "index"),
    [([1, 1.8, 2.4, 2.8], 2), ([1, 2, 4, 8], 3), ([0.4, 1, 2, 4], None), ([1, 0.9, 2.4, 4], 0)],
)
def test_the_efficiency_rule_stops_where_efficiency_first_falls_below_half(
    speedup: list[float], index: int | None
) -> None:
    assert find_last_efficient_index(WORKERS, np.array(speedup)) == index


@pytest.mark.parametrize(("speedup", "index"), [([1, 2, 4, 4], 2), ([1, 1.9, 2, 2.1], 1), ([1, 2, 4, 8], None)])
def test_the_knee_is_the_point_farthest_above_the_chord(speedup: list[float], index: int | None) -> None:
    assert find_speedup_knee_index(WORKERS, np.array(speedup)) == index


def test_two_points_have_no_knee() -> None:
    assert find_speedup_knee_index(WORKERS[:2], np.array([1.0, 1.5])) is None


@pytest.mark.parametrize(("speedup", "index"), [([1, 1.3, 1.5, 1.7], 0), ([1, 1.6, 2.2, 2.5], 1), ([1, 2, 4, 8], 3)])
def test_the_least_cost_rule_requires_a_speedup_of_root_two_per_doubling(
    speedup: list[float], index: int | None
) -> None:
    assert find_index_of_min_workers_time_squared(WORKERS, np.array(speedup)) == index


def test_repeats_over_the_same_seeds_are_paired(trial_of: Callable[..., TrialResult]) -> None:
    """A seed that is equally fast for both strategies cancels: only differences beyond the seeds are uncertain."""
    trials = [
        trial_of(strategy, workers, seconds * factor, repeat=seed, seed=seed)
        for strategy, workers, seconds in (("baseline", 1, 10), ("ring", 4, 4))
        for seed, factor in enumerate((0.8, 1.0, 1.3), start=1)
    ]
    with_own_seeds = [replace(trial, seed=trial.seed + 10 * trial.workers) for trial in trials]

    (paired,), (unpaired,) = speedup_curves(group_trials(trials[::-1])), speedup_curves(group_trials(with_own_seeds))

    assert (paired.paired, unpaired.paired) == (True, False)
    assert paired.points[0].speedup_ci == pytest.approx((2.5, 2.5))
    assert np.ptp(unpaired.points[0].speedup_ci) > 0.5
    assert paired.points[0].seconds_median == 4
    assert paired.points[0].seconds_ci == pytest.approx((2.22, 7.41), abs=0.01)  # 4.05 times or by exp(4.30 x 0.141)
