"""The first sentences of a report: what was swept decides which come first. Numbers can be checked by head."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from analysis.checks.verdict import VerdictLevel
from analysis.metrics.speedup import speedup_curves
from analysis.metrics.worker_choice import chosen_worker_counts
from analysis.reading.run_table import TrialTable
from analysis.report.headline import headline_sentences
from analysis.report.summary_text import summary_sentences
from analysis.results.summary import SUMMARY_SCHEMA, RunSummary
from analysis.results.trial_result import TrialResult, group_trials, measure_trial

Trials = Callable[..., TrialResult]
ONCE = "Each trial ran once: differences of a few percent mean nothing yet."


@pytest.fixture
def trial(make_trial: Callable[..., TrialTable]) -> Trials:
    """trial("ring", 4, 2.0): 1000 samples in these seconds, computing for 100 ms per step unless told otherwise."""
    blank = measure_trial(make_trial({}), [])

    def make(strategy: str, workers: int, seconds: float, condition: str = "", **changes: Any) -> TrialResult:
        told = {"strategy": strategy, "workers": workers, "seconds": seconds, "condition": condition}
        done = {"status": "success", "samples": 1000, "samples_per_second": 1000 / seconds if seconds else None}
        labels = {"condition": condition, "workers": workers}
        phases = {"phase_seconds": {"compute": 0.1, "exchange": 0.1, "wait": 0.0, "update": 0.0}}
        return replace(blank, labels=labels, **(told | done | phases | changes))

    return make


def summary(*trials: TrialResult) -> RunSummary:
    """The numbers of a run of these trials."""
    found = list(speedup_curves(group_trials(trials)))
    picks = [pick for curve in found for pick in chosen_worker_counts(curve)]
    verdict, told = VerdictLevel.VALID, list(trials)
    return RunSummary(SUMMARY_SCHEMA, "s", "simulated", 1.0, verdict, "success", told, found, picks, "r", "", {}, [])


def repeated(trial: Trials, strategy: str, times: tuple[float, ...], condition: str = "") -> list[TrialResult]:
    return [trial(strategy, 4, s, condition, seed=seed, repeat=seed) for seed, s in enumerate(times)]


LUCK = (0.8, 1.0, 1.3, 0.9, 1.1)


@pytest.mark.parametrize(
    ("times", "told"),
    [
        (tuple(1.04 * luck * (1 + 0.001 * seed) for seed, luck in enumerate(LUCK)), "1.04 times as fast as ps"),
        ((1.6, 1.01), "too close to call"),
    ],
)
def test_the_headline_calls_what_the_paired_test_calls(trial: Trials, times: tuple[float, ...], told: str) -> None:
    """4 % with every seed are a difference, though ranges overlap; 1.5 times may be luck. The list says the same."""
    numbers = summary(*repeated(trial, "ring", LUCK[: len(times)]), *repeated(trial, "ps", times))

    assert told in " ".join(headline_sentences(numbers))
    assert summary_sentences(numbers)[0].startswith("Ring wins") == ("times as fast" in told)


@pytest.mark.parametrize(("seconds", "told"), [(1.04, "too close to call"), (1.06, "1.06 times as fast")])
def test_single_runs_are_called_by_more_than_they_spread(trial: Trials, seconds: float, told: str) -> None:
    assert told in " ".join(headline_sentences(summary(trial("ring", 4, 1.0), trial("ps", 4, seconds))))


def test_under_a_condition_too_the_paired_test_calls(trial: Trials) -> None:
    """Both repeats of one are faster than those of the other, and two that differ so much say nothing."""
    told = headline_sentences(
        summary(
            *(*repeated(trial, "ring", (0.8, 1.0), "speed 1.0"), *repeated(trial, "ring", (4, 8), "speed 0.5")),
            *(*repeated(trial, "ps", (1.6, 1.01), "speed 1.0"), *repeated(trial, "ps", (3, 6), "speed 0.5")),
        )
    )[0]

    assert "with speed 0.5, ps is fastest, 1.33 times as fast as ring" in told
    assert "with speed 1.0, ring and ps are too close to call" in told


def test_conditions_come_first_where_they_were_swept(trial: Trials) -> None:
    """The file asks which strategy suffers least; who is fastest where all is well answers something else."""
    fast, slow = "speed 1.0", "speed 0.5"

    answer = headline_sentences(
        summary(
            *(trial("ring", 4, 2.0, fast), trial("ring", 4, 4.0, slow)),
            *(trial("asp", 4, 2.5, fast), trial("asp", 4, 3.0, slow)),
        )
    )

    assert answer[0] == (
        "From speed 1.0 to speed 0.5, the same samples take 1.20 times as long with asp, 2.00 with ring; "
        "with speed 0.5, asp is fastest, 1.33 times as fast as ring; "
        "with speed 1.0, ring is fastest, 1.25 times as fast as asp."
    )
    assert answer[1].startswith("Ring on 4 workers (speed 1.0) trains fastest")
    assert answer[2:] == [ONCE]  # equal phases explain nothing, and a winner that is its own base gains nothing


def test_the_reason_is_that_of_the_condition_named_first(trial: Trials) -> None:
    waits = {"phase_seconds": {"compute": 0.1, "exchange": 0.1, "wait": 0.2, "update": 0.0}}

    answer = headline_sentences(
        summary(
            *(trial("ring", 4, 2.0, "speed 1.0"), trial("ring", 4, 4.0, "speed 0.5", **waits)),
            *(trial("asp", 4, 2.5, "speed 1.0"), trial("asp", 4, 3.0, "speed 0.5")),
        )
    )

    assert answer[1] == "Why: with speed 0.5 on 4 workers asp waits for 0 ms per step, ring for 200 ms."


def test_growth_comes_first_for_one_strategy_on_many_workers(trial: Trials) -> None:
    answer = headline_sentences(summary(*(trial("ring", workers, 8.0 / workers**0.5) for workers in (1, 4, 16))))

    assert answer[0] == "Ring: from 4 to 16 workers it gets 2.00 times as fast."
    assert answer[1].startswith("Ring on 16 workers trains fastest")
    assert sum("it gets" in sentence for sentence in answer) == 1


def test_workers_that_do_not_pay_come_first_too(trial: Trials) -> None:
    answer = headline_sentences(summary(trial("ps", 8, 4.0), trial("ps", 16, 2.0), trial("ps", 32, 2.5)))

    assert answer[0] == "Ps: more than 16 workers do not pay off; 32 take 1.25 times as long."


def test_the_winner_comes_first_among_strategies_on_many_workers(trial: Trials) -> None:
    """With a batch per worker steps grow, and that is told; nothing is said where they shrink."""
    steps = {("one", 2): 0.1, ("one", 8): 0.22, ("four", 2): 0.1, ("four", 8): 0.13}

    answer = headline_sentences(
        summary(
            *(trial(name, n, 100 * step_s / n, step_seconds={"p50": step_s}) for (name, n), step_s in steps.items())
        )
    )

    assert answer[0].startswith("Four on 8 workers trains fastest")
    assert answer[1] == "From 2 to 8 workers, a step of one becomes 2.20 times as long, of four 1.30 times."


@pytest.mark.parametrize(("exchange_s", "told"), [(0.108, False), (0.112, True)])
def test_a_difference_under_a_tenth_explains_nothing(trial: Trials, exchange_s: float, told: bool) -> None:
    phases = {"compute": 0.1, "exchange": exchange_s, "wait": 0.0, "update": 0.0}

    answer = headline_sentences(summary(trial("ring", 4, 2.0), trial("ps", 4, 4.0, phase_seconds=phases)))

    assert any(sentence.startswith("Why") for sentence in answer) == told


def test_one_number_of_workers_is_nothing_to_choose_from(trial: Trials) -> None:
    assert summary(trial("ring", 4, 2.0), trial("ps", 4, 4.0)).balance == []


@pytest.mark.parametrize("condition", ["", "speed 0.5"])
def test_no_ratio_is_told_where_nothing_took_time(trial: Trials, condition: str) -> None:
    """Under simulated nothing paced and no rate take no time: infinite speedups are no finding."""
    free = [trial(name, workers, 0.0) for name in ("ring", "ps") for workers in (1, 2, 4)]
    dear = [trial(name, 4, 2.0, condition) for name in ("ring", "ps")] if condition else []

    numbers = summary(*free, *dear)

    assert "takes no virtual time" in headline_sentences(numbers)[0]
    assert not any(word in " ".join(headline_sentences(numbers)) for word in ("inf", "nan", "Speedup"))
    assert all(curve.condition for curve in numbers.curves)


def grown(trial: Trials, strategy: str, seconds: float, form_s: float) -> list[TrialResult]:
    """8 seconds on one worker, measured and predicted; on 16 workers these."""
    return [
        trial(strategy, 1, 8.0, predicted_samples_per_second=1000 / 8),
        trial(strategy, 16, seconds, predicted_samples_per_second=1000 / form_s),
    ]


def test_a_speedup_is_told_beside_the_one_that_the_closed_form_says(trial: Trials) -> None:
    """Of the one that grows most, and of the one that its form tells worst; not of one number of workers."""
    ring, asp = grown(trial, "ring", 1.0, 0.8), grown(trial, "asp", 2.0, 2.0)

    answer = headline_sentences(summary(*ring, *asp, *grown(trial, "ps", 4.0, 2.0)))

    told = (
        "Ring on 16 workers: 8.00 times the samples per second of ring on 1 worker, the closed form predicts 10.0; "
        "ps on 16 workers: 2.00 times the samples per second of ps on 1 worker, the closed form predicts"
    )
    assert f"{told} 4.00." in answer
    alone = headline_sentences(summary(trial("ring", 16, 1.0, predicted_samples_per_second=1000.0)))
    assert not any("closed form" in each for each in alone)


def test_of_many_strategies_the_ends_are_told(trial: Trials) -> None:
    """A sentence with thirteen numbers is read by nobody."""
    many = [each for place in range(5) for each in grown(trial, f"s{place}", 1.0 + place, 1.0 + place + (place == 3))]
    phases = [{"compute": 0.1, "exchange": 0.1 * (1 + place), "wait": 0.0, "update": 0.0} for place in range(5)]
    timed = [replace(each, phase_seconds=phases[int(each.strategy[1])]) for each in many]

    answer = headline_sentences(summary(*timed))

    ends = (
        "S0 on 16 workers: 8.00 {of} s0 on 1 worker, the closed form predicts 8.00; s3 on 16 workers: 2.00 {of} s3 on 1"
    )
    assert ends.format(of="times the samples per second of") in " ".join(answer)
    why = next(each for each in answer if each.startswith("Why"))
    assert "s1 for 200 ms, s4 for 500 ms, the others for times in between" in why
    assert "s2" not in why
