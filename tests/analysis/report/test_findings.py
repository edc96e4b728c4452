"""Main finding of a report: it answers the question that was varied. Numbers can be checked by hand."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from analysis.checks.verdict import VerdictLevel
from analysis.metrics.speedup import speedup_curves
from analysis.metrics.strategy_changes.strategy_switch import StrategySwitchResult
from analysis.reading.run_table import TrialLogTables
from analysis.report.findings.main_finding import FINDING_FUNCTIONS, describe_main_finding
from analysis.report.headline import headline_sentences
from analysis.results.measure_trial import measure_trial
from analysis.results.summary import SUMMARY_SCHEMA, RunSummary
from analysis.results.trial_group import group_trials
from analysis.results.trial_result import TrialResult
from services.scenario.published_curves import PublishedCurve

Trials = Callable[..., TrialResult]
REACHED = {"target": "loss ≤ 0.2", "samples_to_target": 1000}


@pytest.fixture
def trial(make_trial: Callable[..., TrialLogTables]) -> Trials:
    """trial("ring", 4, 2.0) returns a trial of 1000 samples in 2 s and ten steps."""
    blank = measure_trial(make_trial({}), [])

    def make(strategy: str, workers: int, seconds: float, condition: str = "", **changes: Any) -> TrialResult:
        identity = {"strategy": strategy, "workers": workers, "seconds": seconds, "condition": condition}
        measured = {"status": "success", "samples": 1000, "samples_per_second": 1000 / seconds, "steps": 10}
        return replace(blank, labels={"condition": condition, "workers": workers}, **(identity | measured | changes))

    return make


def summary(*trials: TrialResult, published: tuple[PublishedCurve, ...] = ()) -> RunSummary:
    """The numbers of a run of these trials."""
    curves = list(speedup_curves(group_trials(trials)))
    results = list(trials)
    return RunSummary(
        SUMMARY_SCHEMA,
        "s",
        "simulated",
        1.0,
        VerdictLevel.VALID,
        "success",
        results,
        curves,
        [],
        "r",
        "",
        {},
        [],
        published,
    )


def fraction_sweep(trial: Trials, **ends: tuple[float, ...]) -> list[TrialResult]:
    """Trials by fraction in percent: seconds, then the final accuracy of each repeat."""
    return [
        trial("switch", 4, seconds, f"fraction {name[1:]}", repeat=seed, seed=seed, final={"accuracy": accuracy})
        for name, (seconds, *accuracies) in ends.items()
        for seed, accuracy in enumerate(accuracies)
    ]


def test_a_sweep_of_the_switch_fraction_is_answered_by_quality_and_time(trial: Trials) -> None:
    """A half synchronous run is as good as a fully synchronous one, as far as two repeats show; asynchronous is not."""
    finding = describe_main_finding(
        summary(*fraction_sweep(trial, f0=(1.0, 0.50, 0.51), f50=(2.0, 0.91, 0.88), f100=(4.0, 0.90, 0.91)))
    )

    assert finding == (
        "switch ends at its best accuracy, 0.905, with fraction 100; "
        "over 2 repeats there is no significant difference to fraction 50 (p ≥ 0.05), "
        "and with fraction 50 (0.895) the same samples take 50% of the time"
    )


def test_a_failed_repeat_leaves_the_other_seeds_to_compare(trial: Trials) -> None:
    """Only seeds that ended under both conditions are compared: of three repeats and two, two."""
    finding = describe_main_finding(
        summary(*fraction_sweep(trial, f0=(1.0, 0.50, 0.51), f50=(2.0, 0.91, 0.88, 0.87), f100=(4.0, 0.90, 0.91)))
    )

    assert "; over 2 repeats there is no significant difference to fraction 50" in finding


def test_a_quality_of_zero_differs_from_a_good_quality(trial: Trials) -> None:
    """A model that never predicts the right class has an accuracy of 0, which has no logarithm."""
    finding = describe_main_finding(summary(*fraction_sweep(trial, f0=(1.0, 0.0, 0.0), f50=(2.0, 0.91, 0.90))))

    assert finding == (
        "switch ends at its best accuracy, 0.905, with fraction 50; "
        "every condition that takes less time differs significantly"
    )


def test_the_best_condition_that_is_also_the_fastest_has_no_alternative(trial: Trials) -> None:
    finding = describe_main_finding(summary(*fraction_sweep(trial, f0=(1.0, 0.95, 0.951), f50=(2.0, 0.90, 0.901))))

    assert finding == "switch ends at its best accuracy, 0.950, with fraction 0; no other condition takes less time"


def test_a_sweep_that_took_no_time_has_no_finding(trial: Trials) -> None:
    """A simulated cluster without pacing or link rates."""
    instant = [
        replace(result, seconds=0.0, samples_per_second=None)
        for result in fraction_sweep(trial, f0=(1, 0.9, 0.8), f1=(1, 0.8, 1))
    ]

    assert describe_main_finding(summary(*instant)) == ""


def test_a_sweep_with_a_target_is_answered_by_the_time_to_the_target(trial: Trials) -> None:
    """The fastest step is useless if the target is missed."""
    ends = {"backups 0": 2.0, "backups 1": 3.0, "backups 2": None}
    trials = [trial("it", 4, 1.0, name, time_to_target_s=s, target="accuracy ≥ 0.9") for name, s in ends.items()]

    assert describe_main_finding(summary(*trials)) == (
        "to reach accuracy ≥ 0.9, it takes 2.00 s with backups 0, takes 3.00 s with 1, misses the target with 2"
    )


def test_agreement_of_strategies_is_measured_by_the_spread_of_final_quality(trial: Trials) -> None:
    """For a regression: the quality of classification does not distinguish two strategies."""
    ends = {"ring": (0.28, 1.0), "ps": (0.31, None)}
    trials = [
        trial(name, 4, 1.0, final={"mae": mae}, time_to_target_s=s, target="mae ≤ 0.3")
        for name, (mae, s) in ends.items()
    ]

    assert describe_main_finding(summary(*trials)) == "1 of 2 trials reach mae ≤ 0.3; they end at mae 0.280 to 0.310"


def test_a_trial_that_failed_after_the_target_does_not_count_as_reaching_it(trial: Trials) -> None:
    ended = {"final": {"mae": 0.3}, "time_to_target_s": 1.0, "target": "mae ≤ 0.3"}

    finding = describe_main_finding(
        summary(trial("ring", 4, 1.0, **ended), trial("ps", 4, 1.0, status="failed", **ended))
    )

    assert finding.startswith("1 of 1 trials reach mae ≤ 0.3")


def sizes_of_ring(trial: Trials, condition: str, sizes: dict[int, tuple[float, int | None]]) -> list[TrialResult]:
    """By number of workers: seconds, and samples to the target."""
    return [
        trial("ring", n, s, condition, target="loss", time_to_target_s=s if needed else None, samples_to_target=needed)
        for n, (s, needed) in sizes.items()
    ]


def test_efficiency_is_reported_at_the_largest_size_of_each_condition(trial: Trials) -> None:
    """The trial on eight workers failed under one condition, whose efficiency is then that of four workers."""
    fixed = sizes_of_ring(trial, "batch fixed", {1: (8.0, 1000), 2: (5.0, 1000), 4: (4.0, 1000), 8: (4.0, 1000)})
    more = sizes_of_ring(trial, "batch growing", {1: (8.0, 1000), 2: (4.0, 1000), 4: (2.0, 1000)})

    assert describe_main_finding(summary(*fixed, *more)) == (
        "on the most workers that ran under each condition, the efficiency of ring is "
        "25.0% with batch fixed (8 workers) (hardware 25% × statistical 100%), "
        "100.0% with batch growing (4 workers) (hardware 100% × statistical 100%)"
    )


def test_a_missed_target_is_not_reported_as_full_efficiency(trial: Trials) -> None:
    """Four workers process samples at full speed but miss the target, which the sentence must state."""
    fixed = sizes_of_ring(trial, "batch fixed", {1: (8.0, 1000), 2: (5.0, 1000), 4: (4.0, 1000)})
    more = sizes_of_ring(trial, "batch growing", {1: (8.0, 1000), 2: (4.0, 1000), 4: (2.0, None)})

    assert describe_main_finding(summary(*fixed, *more)).endswith(
        ", 100.0% with batch growing; with batch growing by time for the same samples: hardware and statistical "
        "efficiency are not measured, since not every number of workers reaches the target"
    )


def test_the_factors_of_the_efficiency_are_reported_under_each_condition(trial: Trials) -> None:
    """Hardware losses cost time at equal samples; learning losses cost samples."""
    spent = {"batch fixed": {1: (8.0, 1000), 2: (5.0, 1000), 4: (4.0, 1000)}}
    spent["batch growing"] = {1: (8.0, 1000), 2: (4.0, 1000), 4: (4.0, 2000)}
    trials = [
        trial("ring", n, s, condition, target="loss", time_to_target_s=s, samples_to_target=needed)
        for condition, sizes in spent.items()
        for n, (s, needed) in sizes.items()
    ]

    assert describe_main_finding(summary(*trials)) == (
        "on 4 workers, the efficiency of ring is 50.0% with batch fixed (hardware 50% × statistical 100%), "
        "50.0% with batch growing (hardware 100% × statistical 50%)"
    )


def test_strategies_that_are_fastest_in_every_case_are_named(trial: Trials) -> None:
    """Two gradient sizes and two numbers of workers: auto is never slower, tree is slower once."""
    seconds = {"ring": (1.0, 2.0, 4.0, 8.0), "auto": (1.01, 2.0, 4.0, 8.1), "tree": (2.0, 2.0, 4.0, 8.0)}
    cases = [(n, f"features {size}") for size in (1, 4) for n in (4, 8)]
    trials = [trial(name, n, s, size) for name, row in seconds.items() for (n, size), s in zip(cases, row, strict=True)]

    assert describe_main_finding(summary(*trials)) == (
        "the mean times of ring and auto are within 5% of the fastest in all 4 cases; "
        "tree on 4 workers (features 1) takes 2.00 times as long as the fastest there"
    )


def test_saturation_by_workers_is_reported_with_the_closed_form(trial: Trials) -> None:
    trials = [trial("one", n, s, saturates_at=5.2) for n, s in ((2, 4.0), (4, 2.2), (8, 2.0))]

    assert describe_main_finding(summary(*trials)) == (
        "one: from 4 to 8 workers, training becomes 1.10 times as fast "
        "(closed form: 5.20 workers saturate its servers' links)"
    )


def test_growth_of_the_step_is_reported_if_the_batch_per_worker_is_fixed(trial: Trials) -> None:
    steps_s = {2: 0.1, 4: 0.15, 8: 0.3}
    trials = [trial("ps", n, s, samples=100 * n, step_seconds={"p50": s}) for n, s in steps_s.items()]

    assert describe_main_finding(summary(*trials)) == "from 2 to 8 workers, a step of ps becomes 3.00 times as long"


def test_the_cost_of_distribution_is_reported_as_remaining_efficiency(trial: Trials) -> None:
    alone = replace(trial("none", 1, 8.0, baseline=True), labels={"condition": ""})

    assert describe_main_finding(summary(alone, trial("ring", 8, 1.0), trial("ps", 8, 1.25))) == (
        "on 8 workers, ring keeps 100.0% and ps keeps 80.0% of the efficiency of one worker alone"
    )


def test_of_many_strategies_the_highest_and_the_lowest_efficiency_are_reported(trial: Trials) -> None:
    alone = replace(trial("none", 1, 8.0, baseline=True), labels={"condition": ""})
    seconds = {"ps": 1.25, "ring": 1.0, "asp": 5.0, "tree": 2.0}

    assert describe_main_finding(summary(alone, *(trial(name, 8, s) for name, s in seconds.items()))) == (
        "on 8 workers, the efficiency is between 20.0% (asp) and 100.0% (ring) of that of one worker alone"
    )


def test_a_run_of_single_trials_is_answered_by_the_number_that_finished(trial: Trials) -> None:
    trials = [trial("ring", 2, 1.0), trial("ps", 2, 1.0)]

    assert describe_main_finding(summary(*trials)) == "all 2 trials finished: ring and ps"
    assert describe_main_finding(summary(trials[0], replace(trials[1], status="failed"))) == "1 of 2 trials finished"


def test_published_results_are_answered_by_the_closed_form(trial: Trials) -> None:
    published_curve = PublishedCurve.model_validate(
        {"strategy": "ring", "source": "a report", "points": [{"workers": 4, "measured": 2.0}]}
    )
    trials = [trial("ring", n, 8 / n, predicted_samples_per_second=125.0 * n) for n in (1, 4)]

    assert describe_main_finding(summary(*trials, published=(published_curve,))) == (
        "ring on 4 workers: 4.00 times the samples per second of ring on 1 worker, the closed form predicts 4.00"
    )


PUBLISHED_TIMES = PublishedCurve.model_validate(
    {
        "strategy": "ring",
        "speedup_of": "time_to_target",
        "base_workers": 4,
        "source": "a round",
        "points": [{"workers": 8, "measured": 1.9}, {"workers": 16, "measured": 3.5}, {"workers": 64, "measured": 9.0}],
    }
)


def test_published_times_are_compared_at_the_largest_relative_size_that_was_measured(trial: Trials) -> None:
    """16 published accelerators are four times the base of four, and so are four workers of one."""
    trials = [trial("ring", n, 8 / n, time_to_target_s=8 / n, **REACHED) for n in (1, 4)]

    sentences = headline_sentences(summary(*trials, published=(PUBLISHED_TIMES,)))

    assert (
        "Ring: a published system with 4.00 times the accelerators of its base (4) reaches its own target 3.50 times "
        "as fast (a round); here, 4.00 times the workers have a speedup of 4.00."
    ) in sentences


def test_published_times_are_not_compared_with_times_for_equal_samples(trial: Trials) -> None:
    """A time to a target contains the samples that it needs; a time for a budget of samples does not."""
    trials = [trial("ring", n, 8 / n, predicted_samples_per_second=125.0 * n) for n in (1, 4)]

    sentences = headline_sentences(summary(*trials, published=(PUBLISHED_TIMES,)))

    assert any("64" not in text and "16.0 times the accelerators of its base (4)" in text for text in sentences)
    assert not any("here, " in text for text in sentences)
    assert describe_main_finding(summary(*trials, published=(PUBLISHED_TIMES,))) == ""


def test_a_run_that_fits_no_kind_of_finding_has_no_main_finding(trial: Trials) -> None:
    """Two strategies to a target, on two numbers of workers."""
    trials = [
        trial(name, n, s / n, time_to_target_s=s / n, **REACHED) for name, s in (("a", 1.0), ("b", 2.0)) for n in (1, 2)
    ]

    assert describe_main_finding(summary(*trials)) == ""


def test_every_finding_function_accepts_a_run_without_finished_trials(trial: Trials) -> None:
    """Findings are computed for every run, also for runs that failed at once."""
    numbers = summary(replace(trial("ring", 2, 1.0), status="aborted"))

    assert all(isinstance(kind(numbers), str) for kind in FINDING_FUNCTIONS)


def test_no_strategy_is_first_if_only_the_baseline_finished(trial: Trials) -> None:
    """Under two conditions, so that there could have been cases to compare."""
    conditions = ("delay 1ms", "delay 5ms")
    alone = [trial("none", 1, 8.0, condition, baseline=True) for condition in conditions]
    failed = [trial("ring", n, 2.0, condition, status="failed") for condition in conditions for n in (2, 4)]

    assert describe_main_finding(summary(*alone, *failed)) == ""


def test_a_switch_is_reported_for_the_largest_worker_count_in_any_order(trial: Trials) -> None:
    """A sweep may begin with its largest size."""
    never = StrategySwitchResult(outcome="never switched", value=None, threshold=None, points=3)
    sizes = [trial("switch", n, 8 / n, switch=never) for n in (8, 4)]

    assert describe_main_finding(summary(*sizes)).startswith("switch on 8 workers: never switched")
    assert not any("on 4 workers: never" in sentence for sentence in headline_sentences(summary(*sizes)))


def test_a_switch_is_the_main_finding_among_few_strategies_only(trial: Trials) -> None:
    """A comparison of eighteen strategies does not ask whether a single switch paid off."""
    never = StrategySwitchResult(outcome="never switched", value=None, threshold=None, points=3)
    switched, other_trials = (
        trial("switch", 4, 4.0, switch=never),
        [trial(name, 4, 2.0) for name in ("ring", "ps", "easgd")],
    )

    assert "never switched" in describe_main_finding(summary(switched, *other_trials[:2]))
    assert "never switched" not in describe_main_finding(summary(switched, *other_trials))
