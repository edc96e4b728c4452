"""Every sentence of a report is a claim: each has a run of which it is true, and runs of which it must not be said."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from analysis.checks.verdict import VerdictLevel
from analysis.metrics.speedup import speedup_curves
from analysis.metrics.step_times.compute_utilisation import UNKNOWN_UTILISATION, ComputeUtilisation
from analysis.metrics.strategy_changes.strategy_switch import StrategySwitchResult
from analysis.reading.run_table import TrialLogTables
from analysis.report.headline import headline_sentences
from analysis.report.summary_text import summary_sentences
from analysis.report.tables.strategy_table import StrategyRow, make_strategy_table
from analysis.results.measure_trial import measure_trial
from analysis.results.summary import SUMMARY_SCHEMA, RunSummary
from analysis.results.trial_group import group_trials
from analysis.results.trial_result import TrialResult

TARGET = "accuracy ≥ 0.95"
Group = dict[str, Any]  # arguments of `repeats`


@pytest.fixture
def run_of(make_trial: Callable[..., TrialLogTables]) -> Callable[..., RunSummary]:
    """run_of(repeats("ring", 4, [1.0, 1.1]), …) returns the numbers of a run of these groups of trials."""
    blank = replace(measure_trial(make_trial({}), []), status="success", samples=1000, steps=10)

    def run(*groups: Group) -> RunSummary:
        trials = [trial for group in groups for trial in trials_of(blank, **group)]
        curves = list(speedup_curves(group_trials(trials)))
        kinds = (VerdictLevel.VALID, "success", trials, curves, [], "r", "", {}, [])
        return RunSummary(SUMMARY_SCHEMA, "s", "simulated", 1.0, *kinds)

    return run


def repeats(strategy: str, workers: int, seconds: list[float], condition: str = "", **changes: Any) -> Group:
    """A group of trials of 1000 samples without a target, one trial per number of seconds, seeds 0, 1, …"""
    return {"strategy": strategy, "workers": workers, "seconds": seconds, "condition": condition, **changes}


def reaching(strategy: str, workers: int, seconds: list[float | None], condition: str = "", **changes: Any) -> Group:
    """A group of trials with a target, reached after these seconds, and missed where the time is None."""
    return repeats(strategy, workers, seconds, condition, target=TARGET, **changes)  # type: ignore[arg-type]


def trials_of(
    blank: TrialResult,
    strategy: str,
    workers: int,
    seconds: list[float | None],
    condition: str,
    finals: list[float] | None = None,
    needed: list[int] | None = None,
    **changes: Any,
) -> list[TrialResult]:
    """Trials of one group; `finals` are the final accuracies, `needed` the samples to the target by seed."""
    trials = []
    for seed, time_s in enumerate(seconds):
        own: dict[str, Any] = {"id": f"{strategy}-{workers}-{condition}-{seed}", "seed": seed, "repeat": seed}
        own["samples_per_second"] = 1000 / (time_s or 10.0)
        own["final"] = {"accuracy": finals[seed]} if finals else {}
        if "target" in changes:
            own["time_to_target_s"] = time_s
            own["samples_to_target"] = None if time_s is None else needed[seed] if needed else 1000
        labels = {"condition": condition, "workers": workers}
        named = {"strategy": strategy, "workers": workers, "condition": condition, "labels": labels}
        trials.append(replace(blank, **(named | own | changes)))
    return trials


def text_of(summary: RunSummary) -> str:
    """All sentences of a report."""
    return " ".join([*headline_sentences(summary), *summary_sentences(summary)])


def at_uplink(strategy: str, uplink: str, share: float | None, workers: int = 4, key: str = "uplink") -> Group:
    """A single trial at a swept rate with a compute utilisation."""
    utilisation = UNKNOWN_UTILISATION if share is None else ComputeUtilisation(share)
    labels = {f"cluster.worker.{key}": uplink, "workers": workers}
    condition = f"{key} {uplink}"
    return repeats(strategy, workers, [1.0], condition, labels=labels, compute_utilisation=utilisation)


def over_links(strategy: str, seconds: list[float]) -> list[Group]:
    """Groups of trials of a strategy over two links and two delays, with the same times."""
    return [
        repeats(strategy, 4, seconds, f"{link}, {delay}", labels={"link": link, "delay": delay, "workers": 4})
        for link in ("10mbit", "1gbit")
        for delay in ("1ms", "10ms")
    ]


SWITCHED = StrategySwitchResult("switched", None, None, 0, before_strategy="ring", after_strategy="asp")
CLEAR, SLOWER, CROSSING = [1.0, 1.2, 0.9, 1.1, 1.0], [2.0, 2.5, 1.9, 2.1, 2.2], [1.1, 1.0, 1.2, 0.9, 1.1]
FAR = [5.0, 6.0, 4.8, 5.2, 5.1]
LOW, HIGH, MIXED = [0.37, 0.38, 0.36], [0.84, 0.85, 0.84], [0.30, 0.90, 0.86]
PHASES = {"compute": 0.1, "exchange": 0.1, "wait": 0.0, "update": 0.0}
SLOW_PHASES = {"phase_seconds": PHASES | {"exchange": 0.4}}
TIMED_PHASES = {"phase_seconds": PHASES}
PER_EVALUATION = {"evaluation_samples": 500}
SIZES: dict[str, Any] = {"gradient_bytes": 1_250_000, "slowest_link_bps": 1e7}

# Claim (a part of a sentence), a run of which it is true, and runs of which it must not be said.
CLAIMS: dict[str, tuple[str, list[Group], list[list[Group]]]] = {
    "the winner reaches the target first": (
        "reaches accuracy ≥ 0.95 first",
        [reaching("ring", 4, CLEAR, "batch 64"), reaching("ring", 4, SLOWER, "batch 16")],
        [
            [reaching("ring", 4, CLEAR, "batch 64"), reaching("ring", 4, CROSSING, "batch 16")],  # another condition
            [reaching("ring", 4, CLEAR), reaching("ring", 8, CROSSING)],  # another number of workers
            [reaching("ring", 4, CLEAR), reaching("ps", 4, CROSSING)],  # another strategy
            [reaching("ring", 4, [1.0]), reaching("ps", 4, [1.04])],  # single runs
        ],
    ),
    "the utilisation is high from a rate on": (
        "at least 95% from uplink 2gbit on with a and b; below 95% at uplink 10gbit with c",
        [
            *[at_uplink("a", rate, share) for rate, share in (("10gbit", 0.99), ("500mbit", 0.9), ("2gbit", 0.96))],
            *[at_uplink("b", rate, share) for rate, share in (("500mbit", 0.1), ("2gbit", 0.95), ("10gbit", 1.0))],
            *[at_uplink("c", rate, share) for rate, share in (("500mbit", 0.96), ("2gbit", 0.96), ("10gbit", 0.9))],
        ],
        [],
    ),
    "some rate is sufficient": (
        "compute utilisation is at least 95%",
        [at_uplink("a", "1gbit", 0.9), at_uplink("a", "2gbit", 0.95)],
        [
            [at_uplink("a", "1gbit", 0.9), at_uplink("a", "2gbit", 0.94)],
            [at_uplink("a", "1gbit", 0.96), at_uplink("a", "2gbit", 0.94)],  # a higher rate has less
        ],
    ),
    "rates and utilisations are known": (
        "compute utilisation is",
        [at_uplink("a", "1gbit", 0.1), at_uplink("a", "2gbit", 0.2)],
        [
            [at_uplink("a", "2gbit", 0.96), at_uplink("a", "10gbit", None)],  # not measured
            [at_uplink("a", "2gbit", 0.96)],  # not swept
            [at_uplink("a", "2gbit", 0.96), at_uplink("a", "10gbit", 0.99, workers=8)],  # workers vary as well
            [at_uplink("a", "2ms", 0.96, key="delay"), at_uplink("a", "10ms", 0.99, key="delay")],
            [at_uplink("a", "slow", 0.96), at_uplink("a", "fast", 0.99)],  # names of cases
        ],
    ),
    "the winner trains fastest": (
        "trains fastest",
        [repeats("ring", 4, CLEAR), repeats("ring", 8, SLOWER)],
        [[repeats("ring", 4, CLEAR), repeats("ring", 8, CROSSING)], [reaching("ring", 4, CLEAR)]],
    ),
    "the winner is so many times as fast, with an interval": (
        "times as fast as ps on 4 workers [",
        [repeats("ring", 4, CLEAR), repeats("ps", 4, SLOWER)],
        [
            [repeats("ring", 4, CLEAR), repeats("ps", 4, CROSSING)],
            [repeats("ring", 4, [1.0]), repeats("ps", 4, [2.0])],  # single runs have no interval
        ],
    ),
    "the significance of a difference is not measured": (
        "(significance not measured: one run each)",
        [repeats("ring", 4, [1.0]), repeats("ps", 4, [2.0])],
        [[repeats("ring", 4, CLEAR), repeats("ps", 4, SLOWER)]],
    ),
    "a difference in time is too close to call": (
        "samples per second, but the difference to ps on 4 workers is too close to call",
        [repeats("ring", 4, CLEAR), repeats("ps", 4, CROSSING)],
        [
            [repeats("ring", 4, CLEAR), repeats("ps", 4, SLOWER)],
            [repeats("ring", 4, [1.0]), repeats("ps", 4, [2.0])],
        ],
    ),
    "the second fastest strategy missed the target": (
        "the second fastest, ps on 4 workers, missed the target in 2 of 2 repeats",
        [reaching("ring", 4, [1.0, 1.1]), reaching("ps", 4, [None, None])],
        [[reaching("ring", 4, [1.0, 1.1]), reaching("ps", 4, [None, 1.2])]],
    ),
    "why the winner wins": (
        "Why: on 4 workers ring exchanges for a mean of 100 ms per step, ps for 400 ms",
        [repeats("ring", 4, CLEAR, **TIMED_PHASES), repeats("ps", 4, SLOWER, **SLOW_PHASES)],
        [
            [repeats("ring", 4, CLEAR, **TIMED_PHASES), repeats("ps", 4, CROSSING, **SLOW_PHASES)],  # no winner
            [repeats("ring", 4, CLEAR, **TIMED_PHASES), repeats("ps", 4, SLOWER, **TIMED_PHASES)],
        ],
    ),
    "the size of a gradient and the slowest link": (
        "(a gradient has 1.25 MB without compression, the slowest link 10.0 Mbit/s)",
        [repeats("ring", 4, CLEAR, **TIMED_PHASES, **SIZES), repeats("ps", 4, SLOWER, **SLOW_PHASES, **SIZES)],
        [
            [
                repeats("ring", 4, CLEAR, **TIMED_PHASES, **SIZES),
                repeats("ps", 4, SLOWER, **SLOW_PHASES, **SIZES | {"slowest_link_bps": None}),  # not the same links
            ],
            [
                repeats("ring", 4, CLEAR, **TIMED_PHASES, **SIZES | {"slowest_link_bps": None}),
                repeats("ps", 4, SLOWER, **SLOW_PHASES, **SIZES | {"slowest_link_bps": None}),
            ],
            [
                repeats("ring", 4, CLEAR, **TIMED_PHASES, **SIZES),
                repeats("ps", 4, SLOWER, phase_seconds=PHASES | {"wait": 0.4}, **SIZES),  # it waits, not exchanges
            ],
        ],
    ),
    "one worker alone has no exchange": (
        "Why: ring on 4 workers exchanges for a mean of 400 ms per step",
        [
            repeats("none", 1, CLEAR, baseline=True, phase_seconds=PHASES | {"exchange": 0.0}),
            repeats("ring", 4, SLOWER, **SLOW_PHASES),
        ],
        [
            [
                repeats("none", 1, SLOWER, baseline=True, phase_seconds=PHASES | {"exchange": 0.0}),
                repeats("ring", 4, CLEAR, **SLOW_PHASES),  # one worker alone is not the fastest
            ],
        ],
    ),
    "a strategy needs more samples": (
        "ps needs 2.50 times the samples of ring",
        [
            reaching("ring", 4, [1.0], needed=[1000], **TIMED_PHASES, **PER_EVALUATION),
            reaching("ps", 4, [3.0], needed=[2500], **TIMED_PHASES, **PER_EVALUATION),
        ],
        [
            [
                reaching("ring", 4, [1.0], needed=[1000], **TIMED_PHASES, **PER_EVALUATION),
                reaching("ps", 4, [3.0], needed=[1500], **TIMED_PHASES, **PER_EVALUATION),  # the next evaluation
            ],
            [
                reaching("ring", 4, [1.0, 1.1], needed=[1000, 2000], **TIMED_PHASES),
                reaching("ps", 4, [3.0, 3.3], needed=[5500, 2000], **TIMED_PHASES),  # seeds differ more
            ],
        ],
    ),
    "the efficiency has two factors": (
        "(hardware ",
        [reaching("ring", n, [8 / n], f"batch {size}") for size in (1, 2) for n in (1, 2, 4)],
        [
            [repeats("ring", n, [8 / n], f"batch {size}") for size in (1, 2) for n in (1, 2, 4)],  # no target
            [reaching("ring", n, [None] if n == 4 else [8 / n], f"batch {size}") for size in (1, 2) for n in (1, 2, 4)],
        ],
    ),
    "final qualities differ at the same samples": (
        "the final accuracy is 0.370 with ring on 8 workers (batch 2) and 0.843 with ring on 8 workers (batch 1)",
        [repeats("ring", 8, CLEAR[:3], "batch 1", finals=HIGH), repeats("ring", 8, CLEAR[:3], "batch 2", finals=LOW)],
        [
            [  # other samples
                repeats("ring", 8, CLEAR[:3], "batch 1", finals=HIGH),
                repeats("ring", 8, CLEAR[:3], "batch 2", finals=LOW, samples=500),
            ],
            [  # training stopped at the target
                reaching("ring", 8, CLEAR[:3], "batch 1", finals=HIGH),
                reaching("ring", 8, CLEAR[:3], "batch 2", finals=LOW),
            ],
        ],
    ),
    "final qualities differ at all": (
        "after equally many samples, the final accuracy",
        [repeats("ring", 8, [1.0], finals=[0.376]), repeats("ps", 8, [1.0], finals=[0.847])],
        [
            [repeats("ring", 8, [1.0], finals=[0.83]), repeats("ps", 8, [1.0], finals=[0.847])],
            [repeats("ring", 8, CLEAR[:3], finals=MIXED), repeats("ps", 8, CLEAR[:3], finals=HIGH)],
        ],
    ),
    "more workers make training faster": (
        "training becomes 2.00 times as fast",
        [repeats("ring", n, [8 / n, 8.8 / n]) for n in (1, 2, 4)],
        [
            [repeats("ring", 1, [8, 9]), repeats("ring", 2, [4, 4.5]), repeats("ring", 4, [4.4, 3.9])],
            [repeats("ring", 1, [8]), repeats("ring", 2, [4]), repeats("ring", 4, [3.9])],
        ],
    ),
    "fewer workers are faster": (
        "ring is fastest on 2 workers; training on 4 workers takes 1.50 times as long",
        [repeats("ring", 1, [8, 9]), repeats("ring", 2, [4, 4.5]), repeats("ring", 4, [6, 6.75])],
        [
            [repeats("ring", 1, [8, 9]), repeats("ring", 2, [4, 4.5]), repeats("ring", 4, [4.5, 4.1])],
            [repeats("ring", 1, [8]), repeats("ring", 2, [4]), repeats("ring", 4, [4.1])],
        ],
    ),
    "a strategy wins": (
        "Ring wins on 4 workers",
        [repeats("ring", 4, CLEAR), repeats("ps", 4, SLOWER)],
        [
            [repeats("ring", 4, CLEAR), repeats("ps", 4, CROSSING)],
            [repeats("ring", 4, [1.0]), repeats("ps", 4, [2.0])],
            [repeats("ring", 4, CLEAR)],
        ],
    ),
    "a strategy is fastest in its only run": (
        "Ring is fastest on 4 workers",
        [repeats("ring", 4, [1.0]), repeats("ps", 4, [2.0])],
        [
            [repeats("ring", 4, [1.0]), repeats("ps", 4, [1.02])],
            [repeats("ring", 4, CLEAR), repeats("ps", 4, CROSSING)],
        ],
    ),
    "a condition is as accurate as the best": (
        "no significant difference to batch 2",
        [
            repeats("ring", 4, [4.0, 4.0, 4.0], "batch 1", finals=[0.95, 0.94, 0.96]),
            repeats("ring", 4, [2.0, 2.0, 2.0], "batch 2", finals=[0.95, 0.95, 0.94]),
        ],
        [
            [  # 0.2 lower on average, but too close to call
                repeats("ring", 4, [4.0, 4.0, 4.0], "batch 1", finals=[0.95, 0.94, 0.96]),
                repeats("ring", 4, [2.0, 2.0, 2.0], "batch 2", finals=[0.95, 0.95, 0.35]),
            ]
        ],
    ),
    "a difference in accuracy is too close to call": (
        "the difference to batch 2 (0.750) is too close to call",
        [
            repeats("ring", 4, [4.0, 4.0, 4.0], "batch 1", finals=[0.95, 0.94, 0.96]),
            repeats("ring", 4, [2.0, 2.0, 2.0], "batch 2", finals=[0.95, 0.95, 0.35]),
        ],
        [
            [
                repeats("ring", 4, [4.0, 4.0, 4.0], "batch 1", finals=[0.95, 0.94, 0.96]),
                repeats("ring", 4, [2.0, 2.0, 2.0], "batch 2", finals=[0.75, 0.74, 0.76]),
            ],
        ],
    ),
    "runs missed the target": (
        "2 of 3 runs missed accuracy ≥ 0.95",
        [reaching("ring", 4, [None, None, 1.0])],
        [[reaching("ring", 4, [1.0, 1.0, None])]],
    ),
    "a condition takes so long to the target, with an interval": (
        "ring takes 1.03 s [",
        [reaching("ring", 4, times, f"batch {index}") for index, times in enumerate((CLEAR, SLOWER, SLOWER))],
        [[reaching("ring", 4, [time], f"batch {index}") for index, time in enumerate((1.03, 2.0, 3.0))]],
    ),
    "a condition misses the target": (
        "misses the target in 1 of 3 repeats",
        [reaching("ring", 4, times, f"batch {index}") for index, times in enumerate(([1.0, None, 1.0], LOW, LOW))],
        [[reaching("ring", 4, times, f"batch {index}") for index, times in enumerate((HIGH, LOW, LOW))]],
    ),
    "strategies are almost the fastest in all cases": (
        "the mean times of ring and ps are within 5%",
        [repeats(name, n, [1.0], f"size {size}") for name in ("ring", "ps") for n in (2, 4) for size in (1, 2)],
        [
            [
                repeats(name, n, [1.2 if (name, n, size) == ("ps", 4, 2) else 1.0], f"size {size}")
                for name in ("ring", "ps")
                for n in (2, 4)
                for size in (1, 2)
            ]
        ],
    ),
    "a step becomes longer": (
        "a step of ring becomes 1.50 times as long",
        [repeats("ring", n, [8 / n], step_seconds={"p50": 0.1 + 0.05 * (n == 4)}) for n in (2, 4)]
        + [repeats("ps", n, [9 / n], step_seconds={"p50": 0.1}) for n in (2, 4)],
        [
            [repeats("ring", n, [8 / n], step_seconds={"p50": 0.1 + 0.005 * (n == 4)}) for n in (2, 4)]
            + [repeats("ps", n, [9 / n], step_seconds={"p50": 0.1}) for n in (2, 4)],
        ],
    ),
    "a switching strategy is sooner than both of its strategies": (
        "switch reaches accuracy ≥ 0.95 sooner than each of its two strategies alone",
        [reaching("switch", 4, CLEAR, switch=SWITCHED), reaching("ring", 4, SLOWER), reaching("asp", 4, SLOWER)],
        [
            [reaching("switch", 4, CLEAR, switch=SWITCHED), reaching("ring", 4, SLOWER), reaching("asp", 4, CROSSING)],
            [reaching("switch", 4, CLEAR, switch=SWITCHED), reaching("ring", 4, CROSSING), reaching("asp", 4, SLOWER)],
            [reaching("switch", 4, SLOWER, switch=SWITCHED), reaching("ring", 4, FAR), reaching("asp", 4, CLEAR)],
            [reaching("switch", 4, [1.0], switch=SWITCHED), reaching("ring", 4, [2.0]), reaching("asp", 4, [2.0])],
            [repeats("switch", 4, CLEAR, switch=SWITCHED), repeats("ring", 4, SLOWER), repeats("asp", 4, SLOWER)],
            [reaching("switch", 4, CLEAR, switch=SWITCHED), reaching("ring", 4, SLOWER)],  # asp did not run
            [reaching("switch", 4, CLEAR, switch=SWITCHED), reaching("ring", 4, SLOWER), reaching("asp", 8, SLOWER)],
            [  # five missed targets are too few for the signed-rank test
                *(reaching("switch", 4, CLEAR, switch=SWITCHED), reaching("ring", 4, SLOWER)),
                reaching("asp", 4, [None] * 5),
            ],
        ],
    ),
    "the strategy after a switch alone is sooner": (
        "asp alone reaches accuracy ≥ 0.95 sooner: 2.",
        [reaching("switch", 4, SLOWER, switch=SWITCHED), reaching("ring", 4, FAR), reaching("asp", 4, CLEAR)],
        [
            [reaching("switch", 4, CROSSING, switch=SWITCHED), reaching("ring", 4, FAR), reaching("asp", 4, CLEAR)],
            [reaching("switch", 4, CLEAR, switch=SWITCHED), reaching("ring", 4, FAR), reaching("asp", 4, SLOWER)],
            [reaching("switch", 4, [2.0], switch=SWITCHED), reaching("ring", 4, [4.0]), reaching("asp", 4, [1.0])],
            [repeats("switch", 4, SLOWER, switch=SWITCHED), repeats("ring", 4, FAR), repeats("asp", 4, CLEAR)],
            [reaching("switch", 4, SLOWER, switch=SWITCHED), reaching("ring", 4, FAR), reaching("asp", 8, CLEAR)],
        ],
    ),
    "a strategy is fastest over two swept keys": (
        "of 4 combinations of link and delay, ring trains fastest in 4",
        [*over_links("ring", CLEAR), *over_links("ps", SLOWER)],
        [
            [*over_links("ring", CLEAR), *over_links("ps", CROSSING)],
            [*over_links("ring", [1.0]), *over_links("ps", [2.0])],
        ],
    ),
    "each trial ran once": (
        "Each trial ran once",
        [repeats("ring", 4, [1.0])],
        [[repeats("ring", 4, [1.0, 1.1])]],
    ),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_sentence_is_said_where_it_is_true(claim: str, run_of: Callable[..., RunSummary]) -> None:
    phrase, groups, _ = CLAIMS[claim]

    assert phrase.lower() in text_of(run_of(*groups)).lower()


@pytest.mark.parametrize(
    ("claim", "groups"),
    [(claim, groups) for claim, (*_, runs) in CLAIMS.items() for groups in runs],
    ids=[f"{claim}-{index}" for claim, (*_, runs) in CLAIMS.items() for index in range(len(runs))],
)
def test_a_sentence_is_not_said_where_it_is_false(
    claim: str, groups: list[Group], run_of: Callable[..., RunSummary]
) -> None:
    phrase = CLAIMS[claim][0].lower()

    sentences = text_of(run_of(*groups)).lower()

    assert phrase not in sentences


def test_only_numbers_of_workers_on_which_a_strategy_wins_are_named(run_of: Callable[..., RunSummary]) -> None:
    """Ps wins on 2 and 8 workers, ring on 4 and 16: "ps wins up to 8 workers" would be false."""
    winners = {2: "ps", 4: "ring", 8: "ps", 16: "ring"}
    groups = [
        repeats(name, n, CLEAR if name == winner else SLOWER)
        for n, winner in winners.items()
        for name in ("ring", "ps")
    ]

    sentence = summary_sentences(run_of(*groups))[0]

    assert sentence.startswith("Ring wins on 16 workers")
    assert sentence.endswith("; ps wins on 2 and 8 workers; ring wins on 4 workers")


def rows_of(summary: RunSummary) -> dict[str, StrategyRow]:
    """Rows of the table of strategies, by strategy."""
    return {row.group.strategy: row for row in make_strategy_table(summary).rows}


def test_the_table_answers_whether_a_strategy_is_faster_in_four_ways(run_of: Callable[..., RunSummary]) -> None:
    rows = rows_of(
        run_of(
            *(repeats("ring", 4, SLOWER), repeats("tree", 4, CLEAR), repeats("ps", 4, [5.0, 6.0, 4.8, 5.2, 5.1])),
            *(repeats("auto", 4, [2.1, 2.4, 2.0, 2.0, 2.3]), repeats("easgd", 4, [2.0])),
        )
    )

    answers = {name: row.comparison_text.split(":")[0] for name, row in rows.items()}
    assert answers == {
        "ring": "reference", "tree": "yes", "ps": "no", "auto": "too close to call", "easgd": "not measured"
    }  # fmt: skip
    low, high = (float(end) for end in rows["tree"].comparison_text.split("[")[1].split("]")[0].split(","))
    assert 1 < low < 2.1 < high


def test_the_table_compares_conditions_if_a_single_strategy_ran(run_of: Callable[..., RunSummary]) -> None:
    conditions = {"batch 1": SLOWER, "batch 2": CLEAR, "batch 3": SLOWER[1:] + SLOWER[:1]}

    rows = make_strategy_table(run_of(*(repeats("ring", 4, times, name) for name, times in conditions.items()))).rows

    assert [row.comparison_text.split(":")[0] for row in rows] == ["reference", "yes", "too close to call"]
    assert rows[1].comparison_text.endswith(" vs batch 1")


FIVE_SPEEDS = {"ring": 1.0, "ps": 1.02, "fp16": 1.04, "top_k": 1.06, "int8": 1.08}


@pytest.mark.parametrize(
    ("repeats_of_each", "times", "is_stated"),
    [(2, FIVE_SPEEDS, True), (4, FIVE_SPEEDS, False), (2, {"ring": 1.0, "ps": 1.0}, False)],
    ids=["two repeats", "four repeats", "equal times"],
)
def test_few_repeats_are_named_where_the_interval_of_an_insignificant_ratio_excludes_1(
    run_of: Callable[..., RunSummary], repeats_of_each: int, times: dict[str, float], is_stated: bool
) -> None:
    """With many comparisons and two seeds, even 27 against 261 s is too close to call, and a user asks why."""
    groups = [
        reaching(name, 4, [seconds * (1 + 0.001 * (repeat * index % 3)) for repeat in range(repeats_of_each)])
        for index, (name, seconds) in enumerate(times.items())
    ]

    text = " ".join(headline_sentences(run_of(*groups)))

    assert ("more repeats may make them significant" in text) == is_stated


def test_the_table_has_columns_for_speedup_where_a_row_has_one(run_of: Callable[..., RunSummary]) -> None:
    """Columns of dashes would push the last column, which compares the strategies, out of the page."""
    same_size = make_strategy_table(run_of(reaching("ring", 4, CLEAR), reaching("ps", 4, SLOWER)))
    two_sizes = make_strategy_table(run_of(reaching("ring", 1, CLEAR), reaching("ring", 4, SLOWER)))

    assert not same_size.has_speedups
    assert not same_size.has_factors
    assert two_sizes.has_speedups
    assert two_sizes.has_factors


def test_the_table_shows_no_interval_of_a_single_run_and_no_factors_without_a_target(
    run_of: Callable[..., RunSummary],
) -> None:
    once = make_strategy_table(run_of(repeats("ring", 1, [2.0]), repeats("ring", 4, [1.0], finals=[0.9]))).rows[-1]
    often = make_strategy_table(run_of(reaching("ring", 1, CLEAR), reaching("ring", 4, SLOWER))).rows[-1]

    assert not any("[" in cell for cell in (once.time, once.speedup, once.efficiency, once.quality))
    assert once.factors == "not measured"
    assert all("[" in cell for cell in (often.time, often.speedup, often.efficiency))
    assert often.factors.endswith(" × 100%")


def test_rounded_intervals_contain_the_rounded_value(run_of: Callable[..., RunSummary]) -> None:
    """Value and interval of every row, as they are printed."""
    generator = np.random.default_rng(0)
    groups = [repeats("ring", n, list(8 / n * np.exp(0.1 * generator.standard_normal(4)))) for n in (1, 2, 4, 8)]

    for row in make_strategy_table(run_of(*groups)).rows[1:]:  # without the base
        for cell in (row.time, row.speedup, row.efficiency):
            value, low, high = (float(part.strip(" %")) for part in cell.replace("[", ",").replace("]", "").split(","))
            assert low <= value <= high
