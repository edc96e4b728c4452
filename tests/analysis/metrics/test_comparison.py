"""Comparison of the strategies of a run: paired by seed, corrected for their number, checked for bugs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from analysis.metrics.comparisons.strategy_comparison import (
    compare_samples_needed,
    compare_strategies,
    explain_unchecked_samples,
)
from analysis.reading.run_table import TrialLogTables
from analysis.results.measure_trial import measure_trial
from analysis.results.trial_group import group_trials
from analysis.results.trial_result import TrialResult

SEED_FACTORS = (0.8, 1.0, 1.3, 0.9, 1.1)

Repeats = Callable[..., list[TrialResult]]


@pytest.fixture
def repeats(make_trial: Callable[..., TrialLogTables]) -> Repeats:
    """repeats("ring", 4, seconds=5) returns five trials whose seeds have the same effect in every strategy."""
    trial = measure_trial(make_trial({}), [])

    def make(strategy: str, workers: int, seconds: float, samples: float = 1000, **changes: Any) -> list[TrialResult]:
        named = {"strategy": strategy, "workers": workers, "baseline": strategy == "baseline", "status": "success"}
        return [
            replace(
                trial,
                **named | changes,
                seed=seed,
                repeat=seed,
                samples=5000,
                samples_per_second=100 / factor,
                time_to_target_s=seconds * factor * (1 + 0.001 * seed),
                samples_to_target=round(samples * factor),
            )
            for seed, factor in enumerate(SEED_FACTORS)
        ]

    return make


def test_the_faster_strategy_of_a_pair_comes_first_with_the_ratio(repeats: Repeats) -> None:
    (difference,) = compare_strategies(group_trials([*repeats("slow", 4, 5.5), *repeats("ring", 4, 5)]))

    assert (difference.faster.strategy, difference.slower.strategy, difference.time_metric) == (
        "ring",
        "slow",
        "time_to_target",
    )
    assert difference.comparison.ratio == pytest.approx(1.1)
    assert difference.comparison.p_value < 1e-6
    assert difference.p_adjusted == difference.comparison.p_value


def test_many_comparisons_raise_every_p_value(repeats: Repeats) -> None:
    trials = [trial for index in range(4) for trial in repeats(f"s{index}", 4, 5 + index)]

    differences = compare_strategies(group_trials(trials))

    assert len(differences) == 6
    assert all(difference.p_adjusted >= difference.comparison.p_value for difference in differences)


def test_only_strategies_with_equal_workers_and_shared_seeds_are_compared(repeats: Repeats) -> None:
    other_seeds = [replace(trial, seed=trial.seed + 4) for trial in repeats("b", 4, 5)]  # one of five is shared

    assert compare_strategies(group_trials([*repeats("a", 4, 5), *repeats("a", 8, 5), *other_seeds])) == ()
    assert compare_strategies(group_trials(repeats("a", 4, 5)[:1] + repeats("c", 4, 6)[:1])) == ()


def test_pairs_use_the_seeds_that_both_strategies_ran(repeats: Repeats) -> None:
    """A failed repeat removes its partner from the comparison, and no other repeat."""
    first, second = repeats("a", 4, 5), repeats("b", 4, 5.5)

    (of_shared_seeds,) = compare_strategies(group_trials([*first[1:], *second[1:]]))
    (with_unpaired_seed,) = compare_strategies(group_trials([*first, *second[1:]]))

    assert (
        with_unpaired_seed.comparison,
        with_unpaired_seed.has_unpaired_repeats,
        of_shared_seeds.has_unpaired_repeats,
    ) == (of_shared_seeds.comparison, True, False)
    assert with_unpaired_seed.comparison.pairs == 4


def test_trials_that_took_no_time_are_not_compared(repeats: Repeats) -> None:
    """A simulated cluster without pacing or link rates; a comparison would end its report."""
    no_times = {"time_to_target_s": None, "samples_per_second": None, "seconds": 0.0}
    trials = [replace(trial, **no_times) for name in ("a", "b") for trial in repeats(name, 2, 1)]

    assert compare_strategies(group_trials(trials)) == ()


def test_without_a_target_strategies_are_compared_by_their_rate(repeats: Repeats) -> None:
    missed = {"status": "missed_target"}
    trials = [replace(trial, time_to_target_s=None) for name in ("a", "b") for trial in repeats(name, 2, 1, **missed)]

    (difference,) = compare_strategies(group_trials(trials))

    assert (difference.time_metric, difference.comparison.ratio) == ("time_to_samples", 1)


def test_a_strategy_that_needs_far_fewer_samples_than_the_baseline_is_suspicious(repeats: Repeats) -> None:
    trials = [*repeats("baseline", 1, 10), *repeats("magic", 4, 3, samples=400), *repeats("ring", 4, 3, samples=1010)]

    checks = compare_samples_needed(group_trials(trials))

    assert {name.split()[0]: check.converges_too_fast for name, check in checks.items()} == {
        "magic": True,
        "ring": False,
    }
    assert compare_samples_needed(group_trials(repeats("ring", 4, 3))) == {}


def test_a_target_met_one_evaluation_earlier_is_not_suspicious(repeats: Repeats) -> None:
    """All repeats of a strategy meet it at the same evaluation, so neither shows any spread: they were rounded."""
    rounded_samples = {"samples_to_target": 5000, "evaluation_samples": 1000}
    base = [replace(trial, **rounded_samples) for trial in repeats("baseline", 1, 10)[:2]]
    ring = [replace(trial, **rounded_samples | {"samples_to_target": 4000}) for trial in repeats("ring", 4, 3)[:2]]

    (rounded,) = compare_samples_needed(group_trials([*base, *ring])).values()
    (exact,) = compare_samples_needed(
        group_trials([replace(trial, evaluation_samples=None) for trial in (*base, *ring)])
    ).values()

    assert not rounded.converges_too_fast
    assert exact.converges_too_fast


def test_many_checks_raise_every_p_value(repeats: Repeats) -> None:
    """A strategy that is barely suspicious alone is not suspicious among many."""
    base, ring = repeats("baseline", 1, 10), repeats("ring", 4, 3, samples=790)
    other_trials = [trial for index in range(9) for trial in repeats(f"s{index}", 4, 3, samples=1000)]

    (alone,) = compare_samples_needed(group_trials([*base, *ring])).values()
    all_checks = compare_samples_needed(group_trials([*base, *ring, *other_trials]))

    assert alone.converges_too_fast
    assert all_checks[group_trials(ring)[0].name].p_value == pytest.approx(min(1, 10 * alone.p_value))
    assert not any(check.converges_too_fast for check in all_checks.values())


def test_one_baseline_checks_all_conditions_on_keys_that_it_lacks(repeats: Repeats) -> None:
    """A single worker has no servers to sweep."""
    magic = repeats("magic", 4, 3, samples=300, condition="servers 2", labels={"servers": 2})

    (check,) = compare_samples_needed(group_trials([*repeats("baseline", 1, 10), *magic])).values()

    assert check.converges_too_fast


@pytest.mark.parametrize(
    ("baseline_repeats", "changes", "reason"),
    [(0, {}, "no baseline"), (1, {}, "a baseline that ran once"), (5, {"samples_to_target": None}, "missed")],
)
def test_the_reason_for_a_missing_check_is_given(
    repeats: Repeats, baseline_repeats: int, changes: dict[str, Any], reason: str
) -> None:
    base = [replace(trial, **changes) for trial in repeats("baseline", 1, 10)[:baseline_repeats]]

    assert reason in explain_unchecked_samples(group_trials([*base, *repeats("ring", 4, 3)]))
    assert explain_unchecked_samples(group_trials([*repeats("baseline", 1, 10), *repeats("ring", 4, 3)])) == ""


def test_rare_evaluations_hide_small_differences_of_times_to_target(repeats: Repeats) -> None:
    """Equal seeds, 2 % apart: significant if every step is evaluated, hidden if evaluations are rare."""
    fine, coarse = (
        [
            replace(trial, evaluation_samples=samples)
            for name, s in (("a", 5), ("b", 5.1))
            for trial in repeats(name, 4, s)
        ]
        for samples in (1, 500)
    )

    (plain,), (hidden,) = compare_strategies(group_trials(fine)), compare_strategies(group_trials(coarse))

    assert plain.p_adjusted < 0.001
    assert hidden.p_adjusted > 0.05
