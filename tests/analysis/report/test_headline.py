"""First sentences of a report: the swept keys decide their order. Numbers can be checked by hand."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from analysis.checks.verdict import VerdictLevel
from analysis.metrics.comparisons.worker_choice import choose_worker_counts_of_curve
from analysis.metrics.speedup import speedup_curves
from analysis.reading.run_table import TrialLogTables
from analysis.report.headline import headline_sentences
from analysis.report.summary_text import summary_sentences
from analysis.report.tables.strategy_table import make_strategy_table
from analysis.report.wording import NO_VALUE
from analysis.results.measure_trial import measure_trial
from analysis.results.summary import SUMMARY_SCHEMA, RunSummary
from analysis.results.trial_group import group_trials
from analysis.results.trial_result import TrialResult

Trials = Callable[..., TrialResult]
ONCE = "Each trial ran once: the significance of differences is not measured, and no number has an interval."


@pytest.fixture
def trial(make_trial: Callable[..., TrialLogTables]) -> Trials:
    """trial("ring", 4, 2.0) returns a trial of 1000 samples in 2 s, with 100 ms of compute per step unless changed."""
    blank = measure_trial(make_trial({}), [])

    def make(strategy: str, workers: int, seconds: float, condition: str = "", **changes: Any) -> TrialResult:
        identity = {"strategy": strategy, "workers": workers, "seconds": seconds, "condition": condition}
        measured = {"status": "success", "samples": 1000, "samples_per_second": 1000 / seconds if seconds else None}
        labels = {"condition": condition, "workers": workers}
        phases = {"phase_seconds": {"compute": 0.1, "exchange": 0.1, "wait": 0.0, "update": 0.0}}
        return replace(blank, labels=labels, **(identity | measured | phases | changes))

    return make


def summary(*trials: TrialResult) -> RunSummary:
    """The numbers of a run of these trials."""
    curves = list(speedup_curves(group_trials(trials)))
    picks = [pick for curve in curves for pick in choose_worker_counts_of_curve(curve)]
    verdict, results = VerdictLevel.VALID, list(trials)
    return RunSummary(
        SUMMARY_SCHEMA, "s", "simulated", 1.0, verdict, "success", results, curves, picks, "r", "", {}, []
    )


def repeats_of(trial: Trials, strategy: str, times: tuple[float, ...], condition: str = "") -> list[TrialResult]:
    return [trial(strategy, 4, s, condition, seed=seed, repeat=seed) for seed, s in enumerate(times)]


CAUSE = "worker-1 was killed at step 50, as declared in events[0]"


@pytest.mark.parametrize(
    ("changes", "is_unproven"),
    [
        ({}, False),
        ({"reasons": [CAUSE, "the links differ"]}, True),
        ({"ended_by_declared_loss": False}, True),
    ],
)
def test_only_ends_that_are_not_declared_must_be_fixed(
    trial: Trials, changes: dict[str, Any], is_unproven: bool
) -> None:
    ended = {"status": "failed", "verdict": VerdictLevel.INVALID, "reasons": [CAUSE], "status_reason": CAUSE}
    ended |= {"samples": 0, "ended_by_declared_loss": True} | changes
    invalid = replace(summary(trial("ring", 4, 2.0), trial("ring", 4, 2.0, "a", **ended)), verdict=VerdictLevel.INVALID)

    assert ("unproven" in headline_sentences(invalid)[-1]) == is_unproven


SEED_FACTORS = (0.8, 1.0, 1.3, 0.9, 1.1)


@pytest.mark.parametrize(
    ("times", "phrase"),
    [
        (tuple(1.04 * luck * (1 + 0.001 * seed) for seed, luck in enumerate(SEED_FACTORS)), "1.04 times as fast as ps"),
        ((1.6, 1.01), "too close to call"),
    ],
)
def test_the_headline_names_a_winner_if_the_paired_test_is_significant(
    trial: Trials, times: tuple[float, ...], phrase: str
) -> None:
    """4 % with every seed are significant, though ranges overlap; 1.5 times may be chance. The list says the same."""
    numbers = summary(*repeats_of(trial, "ring", SEED_FACTORS[: len(times)]), *repeats_of(trial, "ps", times))

    assert phrase in " ".join(headline_sentences(numbers))
    assert summary_sentences(numbers)[0].startswith("Ring wins") == ("times as fast" in phrase)


@pytest.mark.parametrize(("seconds", "phrase"), [(1.04, "too close to call"), (1.06, "1.06 times as fast")])
def test_single_runs_have_a_winner_if_they_differ_by_more_than_the_usual_spread(
    trial: Trials, seconds: float, phrase: str
) -> None:
    assert phrase in " ".join(headline_sentences(summary(trial("ring", 4, 1.0), trial("ps", 4, seconds))))


def test_the_paired_test_also_decides_under_a_condition(trial: Trials) -> None:
    """Both repeats of one strategy are faster, but two repeats that differ so much prove nothing."""
    sentence = headline_sentences(
        summary(
            *(*repeats_of(trial, "ring", (0.8, 1.0), "speed 1.0"), *repeats_of(trial, "ring", (4, 8), "speed 0.5")),
            *(*repeats_of(trial, "ps", (1.6, 1.01), "speed 1.0"), *repeats_of(trial, "ps", (3, 6), "speed 0.5")),
        )
    )[0]

    assert "with speed 0.5, ps is fastest, 1.33 times as fast as ring" in sentence
    assert "with speed 1.0, ring and ps are too close to call" in sentence


def test_swept_conditions_come_first(trial: Trials) -> None:
    """The scenario asks which strategy suffers least; the fastest strategy under good conditions is no answer."""
    fast, slow = "speed 1.0", "speed 0.5"

    sentences = headline_sentences(
        summary(
            *(trial("ring", 4, 2.0, fast), trial("ring", 4, 4.0, slow)),
            *(trial("asp", 4, 2.5, fast), trial("asp", 4, 3.0, slow)),
        )
    )

    assert sentences[0] == (
        "From speed 1.0 to speed 0.5, the same samples take 1.20 times as long with asp, 2.00 with ring; "
        "with speed 0.5, asp is fastest, 1.33 times as fast as ring; "
        "with speed 1.0, ring is fastest, 1.25 times as fast as asp."
    )
    assert sentences[1].startswith("Ring on 4 workers (speed 1.0) trains fastest")
    assert sentences[2:] == [ONCE]  # equal phases explain nothing, and a winner that is its own base gains nothing


def test_the_reason_is_that_of_the_condition_named_first(trial: Trials) -> None:
    waits = {"phase_seconds": {"compute": 0.1, "exchange": 0.1, "wait": 0.2, "update": 0.0}}

    sentences = headline_sentences(
        summary(
            *(trial("ring", 4, 2.0, "speed 1.0"), trial("ring", 4, 4.0, "speed 0.5", **waits)),
            *(trial("asp", 4, 2.5, "speed 1.0"), trial("asp", 4, 3.0, "speed 0.5")),
        )
    )

    assert sentences[1] == "Why: with speed 0.5 on 4 workers asp waits for a mean of 0 ms per step, ring for 200 ms."


def test_scaling_comes_first_for_one_strategy_on_many_worker_counts(trial: Trials) -> None:
    sentences = headline_sentences(summary(*(trial("ring", workers, 8.0 / workers**0.5) for workers in (1, 4, 16))))

    assert sentences[0] == "Ring: from 4 to 16 workers, training becomes 2.00 times as fast."
    assert sentences[1].startswith("Ring on 16 workers trains fastest")
    assert sum("training becomes" in sentence for sentence in sentences) == 1


def test_the_fastest_number_of_workers_comes_first_too(trial: Trials) -> None:
    sentences = headline_sentences(summary(trial("ps", 8, 4.0), trial("ps", 16, 2.0), trial("ps", 32, 2.5)))

    assert sentences[0] == "Ps is fastest on 16 workers; training on 32 workers takes 1.25 times as long."


def test_the_winner_comes_first_among_strategies_on_many_workers(trial: Trials) -> None:
    """With a fixed batch per worker steps get longer, which is reported; shorter steps are not."""
    steps = {("one", 2): 0.1, ("one", 8): 0.22, ("four", 2): 0.1, ("four", 8): 0.13}

    sentences = headline_sentences(
        summary(
            *(trial(name, n, 100 * step_s / n, step_seconds={"p50": step_s}) for (name, n), step_s in steps.items())
        )
    )

    assert sentences[0].startswith("Four on 8 workers trains fastest")
    assert sentences[1] == "From 2 to 8 workers, a step of one becomes 2.20 times as long, of four 1.30 times."


@pytest.mark.parametrize(("exchange_s", "has_reason"), [(0.108, False), (0.112, True)])
def test_a_phase_difference_under_a_tenth_gives_no_reason(trial: Trials, exchange_s: float, has_reason: bool) -> None:
    phases = {"compute": 0.1, "exchange": exchange_s, "wait": 0.0, "update": 0.0}

    sentences = headline_sentences(summary(trial("ring", 4, 2.0), trial("ps", 4, 4.0, phase_seconds=phases)))

    assert any(sentence.startswith("Why") for sentence in sentences) == has_reason


def test_one_number_of_workers_has_no_balance_points(trial: Trials) -> None:
    assert summary(trial("ring", 4, 2.0), trial("ps", 4, 4.0)).balance == []


@pytest.mark.parametrize("condition", ["", "speed 0.5"])
def test_no_ratio_is_reported_if_trials_took_no_time(trial: Trials, condition: str) -> None:
    """In virtual time, trials without pacing and rates take no time: infinite speedups are no finding."""
    instant = [trial(name, workers, 0.0) for name in ("ring", "ps") for workers in (1, 2, 4)]
    timed = [trial(name, 4, 2.0, condition) for name in ("ring", "ps")] if condition else []

    numbers = summary(*instant, *timed)

    assert "takes no virtual time" in headline_sentences(numbers)[0]
    assert not any(word in " ".join(headline_sentences(numbers)) for word in ("inf", "nan", "Speedup"))
    assert all(curve.condition for curve in numbers.curves)


def one_and_sixteen_workers(trial: Trials, strategy: str, seconds: float, form_s: float) -> list[TrialResult]:
    """8 seconds on one worker, measured and predicted; on 16 workers these."""
    return [
        trial(strategy, 1, 8.0, predicted_samples_per_second=1000 / 8),
        trial(strategy, 16, seconds, predicted_samples_per_second=1000 / form_s),
    ]


def test_a_measured_speedup_is_reported_with_that_of_the_closed_form(trial: Trials) -> None:
    """For the strategy with the highest speedup and the one with the worst prediction; not for a single size."""
    ring, asp = one_and_sixteen_workers(trial, "ring", 1.0, 0.8), one_and_sixteen_workers(trial, "asp", 2.0, 2.0)

    sentences = headline_sentences(summary(*ring, *asp, *one_and_sixteen_workers(trial, "ps", 4.0, 2.0)))

    expected = (
        "Ring on 16 workers: 8.00 times the samples per second of ring on 1 worker, the closed form predicts 10.0; "
        "ps on 16 workers: 2.00 times the samples per second of ps on 1 worker, the closed form predicts"
    )
    assert f"{expected} 4.00." in sentences
    alone = headline_sentences(summary(trial("ring", 16, 1.0, predicted_samples_per_second=1000.0)))
    assert not any("closed form" in sentence for sentence in alone)


def test_of_many_strategies_only_the_best_and_the_worst_are_reported(trial: Trials) -> None:
    """A sentence with thirteen numbers is unreadable."""
    many = [
        result
        for index in range(5)
        for result in one_and_sixteen_workers(trial, f"s{index}", 1.0 + index, 1.0 + index + (index == 3))
    ]
    phases = [{"compute": 0.1, "exchange": 0.1 * (1 + index), "wait": 0.0, "update": 0.0} for index in range(5)]
    timed = [replace(result, phase_seconds=phases[int(result.strategy[1])]) for result in many]

    sentences = headline_sentences(summary(*timed))

    expected = (
        "S0 on 16 workers: 8.00 {of} s0 on 1 worker, the closed form predicts 8.00; s3 on 16 workers: 2.00 {of} s3 on 1"
    )
    assert expected.format(of="times the samples per second of") in " ".join(sentences)
    reason = next(sentence for sentence in sentences if sentence.startswith("Why"))
    assert "s1 for 200 ms, s4 for 500 ms; the other strategies lie between these times" in reason
    assert "s2" not in reason


def test_a_single_group_is_not_the_fastest_and_has_no_speedup(trial: Trials) -> None:
    """It is compared with nothing: "fastest" and a speedup of 1.00 would be claims without a measurement."""
    alone = summary(trial("gloo", 2, 2.0))
    compared = summary(trial("gloo", 2, 2.0), trial("ring", 2, 3.0))

    assert "trains at 500 samples per second" in headline_sentences(alone)[0]
    assert "fastest" not in " ".join((*headline_sentences(alone), *summary_sentences(alone)))
    assert [row.speedup for row in make_strategy_table(alone).rows] == [NO_VALUE]
    assert "fastest" in " ".join(headline_sentences(compared))


def test_the_first_of_several_worker_counts_keeps_its_speedup(trial: Trials) -> None:
    """It is the base of the other rows."""
    several = summary(trial("gloo", 2, 2.0), trial("gloo", 4, 1.0))

    assert [row.speedup for row in make_strategy_table(several).rows] == ["1.00", "2.00"]


def test_samples_of_a_command_without_a_batch_are_named_steps(trial: Trials) -> None:
    """Otherwise, a script with batches of 32 seems to train 32 times more slowly."""
    counted = summary(trial("gloo", 2, 2.0))
    uncounted = replace(counted, samples_are_steps=True)

    assert "500 worker steps per second" in headline_sentences(uncounted)[0]
    assert any("batch_per_worker is 1" in sentence for sentence in summary_sentences(uncounted))
    assert not any("batch_per_worker" in sentence for sentence in summary_sentences(counted))
    assert make_strategy_table(uncounted).time_heading == "s per 1,000 worker steps"


def test_a_finished_trial_without_measured_steps_is_not_called_unfinished(trial: Trials) -> None:
    """A training command of another framework may end well without a line that states its steps."""
    without_steps, failed = trial("script", 2, 1.0, samples=0), trial("script", 2, 1.0, status="failed", samples=0)

    assert "finished trial has measured steps" in headline_sentences(summary(without_steps))[0]
    assert headline_sentences(summary(failed)) == ["No trial finished, so there is nothing to compare."]
