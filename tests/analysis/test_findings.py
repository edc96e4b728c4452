"""The first sentence of a report answers what was varied. Numbers can be checked by head."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from analysis.checks.verdict import VerdictLevel
from analysis.metrics.speedup import speedup_curves
from analysis.metrics.strategy_switch import StrategySwitchResult
from analysis.reading.run_table import TrialTable
from analysis.report.findings import FINDING_FUNCTIONS, main_finding
from analysis.report.headline import headline_sentences
from analysis.results.summary import SUMMARY_SCHEMA, RunSummary
from analysis.results.trial_result import TrialResult, group_trials, measure_trial
from services.scenario.published_curves import PublishedCurve

Trials = Callable[..., TrialResult]
REACHED = {"target": "loss ≤ 0.2", "samples_to_target": 1000}


@pytest.fixture
def trial(make_trial: Callable[..., TrialTable]) -> Trials:
    """trial("ring", 4, 2.0): 1000 samples in these seconds, ten steps."""
    blank = measure_trial(make_trial({}), [])

    def make(strategy: str, workers: int, seconds: float, condition: str = "", **changes: Any) -> TrialResult:
        told = {"strategy": strategy, "workers": workers, "seconds": seconds, "condition": condition}
        done = {"status": "success", "samples": 1000, "samples_per_second": 1000 / seconds, "steps": 10}
        return replace(blank, labels={"condition": condition, "workers": workers}, **(told | done | changes))

    return make


def summary(*trials: TrialResult, published: tuple[PublishedCurve, ...] = ()) -> RunSummary:
    """The numbers of a run of these trials."""
    found = list(speedup_curves(group_trials(trials)))
    told = list(trials)
    return RunSummary(
        SUMMARY_SCHEMA,
        "s",
        "simulated",
        1.0,
        VerdictLevel.VALID,
        "success",
        told,
        found,
        [],
        "r",
        "",
        {},
        [],
        published,
    )


def ladder(trial: Trials, **ends: tuple[float, ...]) -> list[TrialResult]:
    """By fraction in percent: seconds, and the accuracy at the end of two repeats."""
    return [
        trial("switch", 4, seconds, f"fraction {name[1:]}", repeat=seed, seed=seed, final={"accuracy": accuracy})
        for name, (seconds, *ended) in ends.items()
        for seed, accuracy in enumerate(ended)
    ]


def test_how_little_is_enough_is_answered_by_quality_and_time(trial: Trials) -> None:
    """Half in lockstep is as good as all of it, as far as two repeats can tell; none is not."""
    told = main_finding(summary(*ladder(trial, f0=(1.0, 0.50, 0.51), f50=(2.0, 0.91, 0.88), f100=(4.0, 0.90, 0.91))))

    assert told == (
        "switch ends at its best accuracy, 0.905, with fraction 100; "
        "over 2 repeats there is no significant difference to fraction 50 (p ≥ 0.05), "
        "and with fraction 50 (0.895) the same samples take 50% of the time"
    )


def test_a_repeat_that_failed_leaves_the_others_to_compare(trial: Trials) -> None:
    """Seeds are compared that ended in both; of three repeats and two, two."""
    told = main_finding(
        summary(*ladder(trial, f0=(1.0, 0.50, 0.51), f50=(2.0, 0.91, 0.88, 0.7), f100=(4.0, 0.90, 0.91)))
    )

    assert "; over 2 repeats there is no significant difference to fraction 50" in told


def test_a_quality_of_zero_is_told_from_a_good_one(trial: Trials) -> None:
    """A model that never finds the right class has an accuracy, of which there is no logarithm."""
    told = main_finding(summary(*ladder(trial, f0=(1.0, 0.0, 0.0), f50=(2.0, 0.91, 0.90))))

    assert told == (
        "switch ends at its best accuracy, 0.905, with fraction 50; "
        "every condition that takes less time differs significantly"
    )


def test_the_best_that_is_also_the_fastest_is_told_from_nothing(trial: Trials) -> None:
    told = main_finding(summary(*ladder(trial, f0=(1.0, 0.95, 0.951), f50=(2.0, 0.90, 0.901))))

    assert told == "switch ends at its best accuracy, 0.950, with fraction 0; no other condition takes less time"


def test_where_nothing_took_time_nothing_is_as_good_in_less(trial: Trials) -> None:
    """A simulated cluster without any pace or rate."""
    still = [
        replace(each, seconds=0.0, samples_per_second=None) for each in ladder(trial, f0=(1, 0.9, 0.8), f1=(1, 0.8, 1))
    ]

    assert main_finding(summary(*still)) == ""


def test_how_much_is_best_is_answered_by_the_time_to_the_target(trial: Trials) -> None:
    """The fastest step is of no use to who misses the target."""
    ends = {"backups 0": 2.0, "backups 1": 3.0, "backups 2": None}
    trials = [trial("it", 4, 1.0, name, time_to_target_s=s, target="accuracy ≥ 0.9") for name, s in ends.items()]

    assert main_finding(summary(*trials)) == (
        "to reach accuracy ≥ 0.9, it takes 2.00 s with backups 0, takes 3.00 s with 1, misses it with 2"
    )


def test_whether_strategies_agree_is_told_by_the_spread_at_the_end(trial: Trials) -> None:
    """Of a regression: how good a model is at classifying is not what tells two strategies apart."""
    ends = {"ring": (0.28, 1.0), "ps": (0.31, None)}
    trials = [
        trial(name, 4, 1.0, final={"mae": mae}, time_to_target_s=s, target="mae ≤ 0.3")
        for name, (mae, s) in ends.items()
    ]

    assert main_finding(summary(*trials)) == "1 of 2 trials reach mae ≤ 0.3; they end at mae 0.280 to 0.310"


def test_who_failed_after_the_target_is_not_among_those_who_reached_it(trial: Trials) -> None:
    ended = {"final": {"mae": 0.3}, "time_to_target_s": 1.0, "target": "mae ≤ 0.3"}

    told = main_finding(summary(trial("ring", 4, 1.0, **ended), trial("ps", 4, 1.0, status="failed", **ended)))

    assert told.startswith("1 of 1 trials reach mae ≤ 0.3")


def growing(trial: Trials, condition: str, sizes: dict[int, tuple[float, int | None]]) -> list[TrialResult]:
    """By number of workers: seconds, and samples to the target."""
    return [
        trial("ring", n, s, condition, target="loss", time_to_target_s=s if needed else None, samples_to_target=needed)
        for n, (s, needed) in sizes.items()
    ]


def test_efficiency_is_told_of_the_size_that_ran_under_each_condition(trial: Trials) -> None:
    """The trial on eight failed under one: what four keep is not told of eight."""
    fixed = growing(trial, "batch fixed", {1: (8.0, 1000), 2: (5.0, 1000), 4: (4.0, 1000), 8: (4.0, 1000)})
    more = growing(trial, "batch growing", {1: (8.0, 1000), 2: (4.0, 1000), 4: (2.0, 1000)})

    assert main_finding(summary(*fixed, *more)) == (
        "on the most workers that ran under each condition, the efficiency of ring is "
        "25% with batch fixed (8 workers), all of the loss in hardware; 100% with batch growing (4 workers)"
    )


def test_a_target_that_was_missed_is_not_told_as_efficiency_that_was_kept(trial: Trials) -> None:
    """Four workers are as fast per sample as can be, and no good: who looks at samples alone must hear it."""
    fixed = growing(trial, "batch fixed", {1: (8.0, 1000), 2: (5.0, 1000), 4: (4.0, 1000)})
    more = growing(trial, "batch growing", {1: (8.0, 1000), 2: (4.0, 1000), 4: (2.0, None)})

    assert main_finding(summary(*fixed, *more)).endswith(
        "; 100% with batch growing by samples only, since not every number of workers reaches the target"
    )


def test_where_efficiency_goes_is_told_under_each_condition(trial: Trials) -> None:
    """Hardware keeps the samples and loses the time; learning loses samples."""
    spent = {"batch fixed": {1: (8.0, 1000), 2: (5.0, 1000), 4: (4.0, 1000)}}
    spent["batch growing"] = {1: (8.0, 1000), 2: (4.0, 1000), 4: (4.0, 2000)}
    trials = [
        trial("ring", n, s, condition, target="loss", time_to_target_s=s, samples_to_target=needed)
        for condition, sizes in spent.items()
        for n, (s, needed) in sizes.items()
    ]

    assert main_finding(summary(*trials)) == (
        "on 4 workers, the efficiency of ring is 50% with batch fixed, all of the loss in hardware; "
        "50% with batch growing, mostly lost in learning (50%; hardware 100%)"
    )


def test_who_is_first_in_every_case_is_named(trial: Trials) -> None:
    """Two sizes of gradients, two numbers of workers: auto is never behind, tree is once."""
    seconds = {"ring": (1.0, 2.0, 4.0, 8.0), "auto": (1.01, 2.0, 4.0, 8.1), "tree": (2.0, 2.0, 4.0, 8.0)}
    cases = [(n, f"features {size}") for size in (1, 4) for n in (4, 8)]
    trials = [trial(name, n, s, size) for name, row in seconds.items() for (n, size), s in zip(cases, row, strict=True)]

    assert main_finding(summary(*trials)) == (
        "ring and auto are within 5% of the fastest in all 4 cases; "
        "tree on 4 workers (features 1) takes 2.00 times as long as the fastest there"
    )


def test_from_how_many_workers_on_more_gain_nothing_is_told_beside_the_closed_form(trial: Trials) -> None:
    trials = [trial("one", n, s, saturates_at=5.2) for n, s in ((2, 4.0), (4, 2.1), (8, 2.0))]

    assert main_finding(summary(*trials)) == (
        "one: from 4 to 8 workers it gets 1.05 times as fast (closed form: 5.20 workers fill its servers' links)"
    )


def test_how_a_step_grows_is_told_where_every_worker_keeps_its_batch(trial: Trials) -> None:
    steps_s = {2: 0.1, 4: 0.15, 8: 0.3}
    trials = [trial("ps", n, s, samples=100 * n, step_seconds={"p50": s}) for n, s in steps_s.items()]

    assert main_finding(summary(*trials)) == "from 2 to 8 workers, a step of ps becomes 3.00 times as long"


def test_what_sharing_costs_is_the_efficiency_that_is_left(trial: Trials) -> None:
    alone = replace(trial("none", 1, 8.0, baseline=True), labels={"condition": ""})

    assert main_finding(summary(alone, trial("ring", 8, 1.0), trial("ps", 8, 1.25))) == (
        "on 8 workers, ring keeps 100.0% and ps keeps 80.0% of the efficiency of one worker alone"
    )


def test_whether_everything_runs_is_answered_by_what_ran(trial: Trials) -> None:
    both = [trial("ring", 2, 1.0), trial("ps", 2, 1.0)]

    assert main_finding(summary(*both)) == "all 2 trials finished: ring and ps"
    assert main_finding(summary(both[0], replace(both[1], status="failed"))) == "1 of 2 trials finished"


def test_what_others_published_asks_for_the_closed_form(trial: Trials) -> None:
    theirs = PublishedCurve.model_validate(
        {"strategy": "ring", "source": "a report", "points": [{"workers": 4, "measured": 2.0}]}
    )
    trials = [trial("ring", n, 8 / n, predicted_samples_per_second=125.0 * n) for n in (1, 4)]

    assert main_finding(summary(*trials, published=(theirs,))) == (
        "ring on 4 workers: 4.00 times the samples per second of ring on 1 worker, the closed form predicts 4.00"
    )


def test_where_nothing_of_this_was_varied_the_fastest_is_the_answer(trial: Trials) -> None:
    """Two strategies to a target, on two numbers of workers: no kind speaks."""
    trials = [
        trial(name, n, s / n, time_to_target_s=s / n, **REACHED) for name, s in (("a", 1.0), ("b", 2.0)) for n in (1, 2)
    ]

    assert main_finding(summary(*trials)) == ""


def test_a_run_of_which_no_trial_finished_has_no_answer(trial: Trials) -> None:
    """Kinds are asked of every run, also of those that broke off at once."""
    numbers = summary(replace(trial("ring", 2, 1.0), status="aborted"))

    assert all(isinstance(kind(numbers), str) for kind in FINDING_FUNCTIONS)


def test_nobody_is_first_where_one_worker_alone_was_all_that_finished(trial: Trials) -> None:
    """Under two conditions, so that there might have been cases to be the best in."""
    conditions = ("delay 1ms", "delay 5ms")
    alone = [trial("none", 1, 8.0, each, baseline=True) for each in conditions]
    failed = [trial("ring", n, 2.0, each, status="failed") for each in conditions for n in (2, 4)]

    assert main_finding(summary(*alone, *failed)) == ""


def test_a_switch_is_told_of_the_most_workers_in_whatever_order_they_ran(trial: Trials) -> None:
    """A sweep may begin with its largest size."""
    never = StrategySwitchResult(outcome="never switched", value=None, threshold=None, points=3)
    sizes = [trial("switch", n, 8 / n, switch=never) for n in (8, 4)]

    assert main_finding(summary(*sizes)).startswith("switch on 8 workers: never switched")
    assert not any("on 4 workers: never" in told for told in headline_sentences(summary(*sizes)))


def test_a_switch_is_the_question_among_few_strategies_and_one_of_them_among_many(trial: Trials) -> None:
    """Whether the eighteenth way to agree paid by itself is not what a comparison of eighteen asks."""
    never = StrategySwitchResult(outcome="never switched", value=None, threshold=None, points=3)
    switched, others = trial("switch", 4, 4.0, switch=never), [trial(name, 4, 2.0) for name in ("ring", "ps", "easgd")]

    assert "never switched" in main_finding(summary(switched, *others[:2]))
    assert "never switched" not in main_finding(summary(switched, *others))
