"""Strategies of one run beside each other: paired by seed, corrected for their number, guarded against bugs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from analysis.metrics.strategy_comparison import check_samples_to_target, compare_strategies, explain_missing_baselines
from analysis.reading.run_table import TrialTable
from analysis.results.trial_result import TrialResult, group_trials, measure_trial

LUCK = (0.8, 1.0, 1.3, 0.9, 1.1)

Repeats = Callable[..., list[TrialResult]]


@pytest.fixture
def repeats(make_trial: Callable[..., TrialTable]) -> Repeats:
    """repeats("ring", 4, seconds=5): five trials whose seeds have the same luck in every strategy."""
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
                samples_per_second=100 / luck,
                time_to_target_s=seconds * luck * (1 + 0.001 * seed),
                samples_to_target=round(samples * luck),
            )
            for seed, luck in enumerate(LUCK)
        ]

    return make


def test_the_faster_of_a_pair_comes_first_with_how_much_faster_it_is(repeats: Repeats) -> None:
    (found,) = compare_strategies(group_trials([*repeats("slow", 4, 5.5), *repeats("ring", 4, 5)]))

    assert (found.faster.strategy, found.slower.strategy, found.time_metric) == ("ring", "slow", "time_to_target")
    assert found.comparison.ratio == pytest.approx(1.1)
    assert found.comparison.p_value < 1e-6
    assert found.p_adjusted == found.comparison.p_value


def test_many_comparisons_raise_every_p_value(repeats: Repeats) -> None:
    trials = [trial for place in range(4) for trial in repeats(f"s{place}", 4, 5 + place)]

    found = compare_strategies(group_trials(trials))

    assert len(found) == 6
    assert all(each.p_adjusted >= each.comparison.p_value for each in found)


def test_only_like_is_compared_with_like(repeats: Repeats) -> None:
    other_seeds = [replace(trial, seed=trial.seed + 4) for trial in repeats("b", 4, 5)]  # one of five is shared

    assert compare_strategies(group_trials([*repeats("a", 4, 5), *repeats("a", 8, 5), *other_seeds])) == ()
    assert compare_strategies(group_trials(repeats("a", 4, 5)[:1] + repeats("c", 4, 6)[:1])) == ()


def test_pairs_are_of_the_seeds_that_both_ran(repeats: Repeats) -> None:
    """A repeat that failed takes its partner along, and nobody else."""
    whole, lost = repeats("a", 4, 5), repeats("b", 4, 5.5)

    (every,) = compare_strategies(group_trials([*whole[1:], *lost[1:]]))
    (found,) = compare_strategies(group_trials([*whole, *lost[1:]]))

    assert (found.comparison, found.has_unpaired_repeats, every.has_unpaired_repeats) == (every.comparison, True, False)
    assert found.comparison.pairs == 4


def test_what_took_no_time_is_not_compared(repeats: Repeats) -> None:
    """A simulated cluster without any pace or rate; a comparison would end its report."""
    still = {"time_to_target_s": None, "samples_per_second": None, "seconds": 0.0}
    trials = [replace(trial, **still) for name in ("a", "b") for trial in repeats(name, 2, 1)]

    assert compare_strategies(group_trials(trials)) == ()


def test_without_a_target_strategies_are_compared_by_their_rate(repeats: Repeats) -> None:
    missed = {"status": "missed_target"}
    trials = [replace(trial, time_to_target_s=None) for name in ("a", "b") for trial in repeats(name, 2, 1, **missed)]

    (found,) = compare_strategies(group_trials(trials))

    assert (found.time_metric, found.comparison.ratio) == ("time_to_samples", 1)


def test_who_needs_far_fewer_samples_than_one_worker_alone_is_suspicious(repeats: Repeats) -> None:
    trials = [*repeats("baseline", 1, 10), *repeats("magic", 4, 3, samples=400), *repeats("ring", 4, 3, samples=1010)]

    found = check_samples_to_target(group_trials(trials))

    assert {name.split()[0]: each.advice for name, each in found.items()} == {"magic": "check for a bug", "ring": ""}
    assert check_samples_to_target(group_trials(repeats("ring", 4, 3))) == {}


def test_a_target_met_one_evaluation_earlier_is_not_suspicious(repeats: Repeats) -> None:
    """All repeats of either side meet it at the same evaluation, so neither shows any spread: they were rounded."""
    alike = {"samples_to_target": 5000, "evaluation_samples": 1000}
    base = [replace(trial, **alike) for trial in repeats("baseline", 1, 10)[:2]]
    ring = [replace(trial, **alike | {"samples_to_target": 4000}) for trial in repeats("ring", 4, 3)[:2]]

    (rounded,) = check_samples_to_target(group_trials([*base, *ring])).values()
    (exact,) = check_samples_to_target(
        group_trials([replace(trial, evaluation_samples=None) for trial in (*base, *ring)])
    ).values()

    assert not rounded.is_suspicious
    assert exact.is_suspicious


def test_many_guards_raise_every_p_value(repeats: Repeats) -> None:
    """Who is barely suspicious alone is not among many."""
    base, ring = repeats("baseline", 1, 10), repeats("ring", 4, 3, samples=790)
    others = [trial for place in range(9) for trial in repeats(f"s{place}", 4, 3, samples=1000)]

    (alone,) = check_samples_to_target(group_trials([*base, *ring])).values()
    among = check_samples_to_target(group_trials([*base, *ring, *others]))

    assert alone.is_suspicious
    assert among[group_trials(ring)[0].name].p_value == pytest.approx(min(1, 10 * alone.p_value))
    assert not any(each.is_suspicious for each in among.values())


def test_one_baseline_guards_all_conditions_that_it_serves(repeats: Repeats) -> None:
    """One worker alone has no servers to sweep."""
    magic = repeats("magic", 4, 3, samples=300, condition="servers 2", labels={"servers": 2})

    (found,) = check_samples_to_target(group_trials([*repeats("baseline", 1, 10), *magic])).values()

    assert found.is_suspicious


@pytest.mark.parametrize(
    ("kept", "changes", "why"),
    [(0, {}, "no baseline"), (1, {}, "a baseline that ran once"), (5, {"samples_to_target": None}, "missed")],
)
def test_why_the_guard_was_not_run_is_known(repeats: Repeats, kept: int, changes: dict[str, Any], why: str) -> None:
    base = [replace(trial, **changes) for trial in repeats("baseline", 1, 10)[:kept]]

    assert why in explain_missing_baselines(group_trials([*base, *repeats("ring", 4, 3)]))
    assert explain_missing_baselines(group_trials([*repeats("baseline", 1, 10), *repeats("ring", 4, 3)])) == ""


def test_how_often_is_evaluated_bounds_what_times_to_target_say(repeats: Repeats) -> None:
    """Same luck, 2 % apart: plain where every step is evaluated, nothing where the target is met within one of few."""
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
