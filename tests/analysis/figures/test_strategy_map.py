"""Figure `strategy_map`: a cell is hatched unless paired tests separate its fastest strategy from every other."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from analysis.checks.verdict import VerdictLevel
from analysis.figures import AnalysedRun, CaptionedFigure
from analysis.figures.drawing.style import BACKGROUND, strategy_colour
from analysis.figures.sweeps.strategy_map import NO_RESULT, draw_strategy_map
from analysis.metrics.comparisons.strategy_comparison import FasterAnswer
from analysis.reading.run_folder import RunFolder
from analysis.reading.run_table import RunLogTables, TrialLogTables
from analysis.report.report import render_report_page
from analysis.results.analyse_run import analyse_run
from analysis.results.measure_trial import measure_trial
from analysis.results.strategy_map import StrategyMap, StrategyMapCell, make_strategy_map
from analysis.results.summary import SUMMARY_SCHEMA, RunSummary, SkippedTrial
from analysis.results.trial_result import TrialResult

TARGET = "accuracy ≥ 0.95"
LINKS, DELAYS = ("10mbit", "1gbit"), ("1ms", "10ms")
CORNER = (LINKS[0], DELAYS[0])  # the cell whose times the tests change
FAST, SLOW = [1.0, 1.2, 0.9, 1.1, 1.0], [2.0, 2.5, 1.9, 2.1, 2.2]
NEARLY = [time_s * np.exp(gap) for time_s, gap in zip(FAST, (0.02, 0.08, 0.05, 0.11, 0.04), strict=True)]  # p = 0.02
CROSSING = [1.1, 1.0, 1.2, 0.9, 1.1]
Times = Sequence[float | None]
MakeRun = Callable[..., RunSummary]


@pytest.fixture
def grid(make_trial: Callable[..., TrialLogTables]) -> MakeRun:
    """grid(FAST, CROSSING) returns a run over 2 x 2 conditions: times of ring and of ps in one cell.

    In the other cells, ring clearly wins, unless `others` gives their times. With `target`, times are times to it.
    """
    blank = replace(measure_trial(make_trial({}), []), status="success", samples=1000, steps=10)

    def make(
        ring: Times, ps: Times, others: tuple[Times, Times] = (FAST, SLOW), target: str | None = None
    ) -> RunSummary:
        trials = [
            trial
            for name, index in (("ring", 0), ("ps", 1))
            for link in LINKS
            for delay in DELAYS
            for trial in trials_of(
                blank,
                name,
                {"link": link, "delay": delay},
                ((ring, ps) if (link, delay) == CORNER else others)[index],
                target,
            )
        ]
        return run_of(trials)

    return make


def trials_of(
    blank: TrialResult, strategy: str, labels: dict[str, Any], times: Times, target: str | None = None
) -> list[TrialResult]:
    """One trial per time, with seeds 0, 1, …; a trial without a time missed the target."""
    condition = ", ".join(f"{key} {value}" for key, value in sorted(labels.items()) if key != "workers")
    named = {"strategy": strategy, "labels": {"workers": 4, **labels}, "condition": condition}
    return [
        replace(
            blank,
            **{"workers": 4, "id": f"{strategy}-{condition}-{seed}", "seed": seed, "repeat": seed, **named},
            samples_per_second=1000 / (time_s or 10.0),
            target=target,
            time_to_target_s=time_s if target else None,
        )
        for seed, time_s in enumerate(times)
    ]


def run_of(trials: list[TrialResult]) -> RunSummary:
    kinds = (VerdictLevel.VALID, "success", trials, [], [], "r", "", {}, [])
    return RunSummary(SUMMARY_SCHEMA, "s", "simulated", 1.0, *kinds)


def map_of(summary: RunSummary) -> StrategyMap:
    strategy_map = make_strategy_map(summary)
    assert strategy_map is not None
    return strategy_map


def corner_of(summary: RunSummary) -> StrategyMapCell:
    return next(cell for cell in map_of(summary).cells if (cell.x, cell.y) == CORNER)


def drawing_of(summary: RunSummary) -> CaptionedFigure:
    """The figure, which needs no tables of logs."""
    drawing = draw_strategy_map(AnalysedRun(cast("RunLogTables", None), summary))
    assert drawing is not None
    return drawing


def corner_patch(summary: RunSummary) -> Rectangle:
    """The rectangle of the first cell, which is at the lower left."""
    patches = [patch for patch in drawing_of(summary).figure.axes[0].patches if isinstance(patch, Rectangle)]
    assert len(patches) == len(LINKS) * len(DELAYS)
    return next(patch for patch in patches if patch.get_xy() == (-0.5, -0.5))


def test_a_cell_has_the_colour_of_the_strategy_with_the_least_median_time(grid: MakeRun) -> None:
    """A single slow run must not decide: the mean of ps is lower, and its median is higher."""
    summary = grid([1.0, 1.0, 9.0], [1.5, 1.5, 1.5])

    cell = corner_of(summary)

    assert cell.winner is not None
    assert cell.runner_up is not None
    assert (cell.winner.strategy, cell.runner_up.strategy) == ("ring", "ps")
    assert cell.ratio == pytest.approx(1.5)
    assert to_hex(corner_patch(summary).get_facecolor()) == strategy_colour(summary, "ring")


@pytest.mark.parametrize(
    ("ring", "ps", "answer"),
    [
        (FAST, SLOW, FasterAnswer.YES),
        (FAST, CROSSING, FasterAnswer.TOO_CLOSE),
        ([1.0, 1.0, 1.0, 9.0, 9.0], [1.1] * 5, FasterAnswer.TOO_CLOSE),  # median and mean disagree
        ([1.0], [5.0], FasterAnswer.NOT_MEASURED),  # single runs have no test, however large the ratio is
        (FAST, [5.0], FasterAnswer.NOT_MEASURED),  # one shared seed
        (FAST, [], FasterAnswer.NOT_MEASURED),  # no second strategy
    ],
)
def test_a_cell_is_hatched_unless_a_paired_test_separates_the_two_fastest(
    grid: MakeRun, ring: Times, ps: Times, answer: FasterAnswer
) -> None:
    """Colours are claims; a reader must see which of them are proven."""
    summary = grid(ring, ps)

    assert corner_of(summary).answer == answer
    assert bool(corner_patch(summary).get_hatch()) == (answer != FasterAnswer.YES)


@pytest.mark.parametrize(
    ("third", "answer"),
    [
        ([1.1, 9.0, 8.0, 1.1, 9.0], FasterAnswer.TOO_CLOSE),  # median 8: slower than ps, but varies widely
        ([9.0], FasterAnswer.NOT_MEASURED),  # one shared seed
        ([9.0, 9.5, 8.9, 9.1, 9.0], FasterAnswer.YES),
    ],
)
def test_the_fastest_must_be_separated_from_every_other_strategy(
    grid: MakeRun, third: Times, answer: FasterAnswer
) -> None:
    """A test against the second fastest alone says nothing about the others."""
    trials = grid(FAST, SLOW).trials
    corner = next(trial for trial in trials if lies_in_corner(trial))
    others = trials_of(corner, "third", {key: corner.labels[key] for key in ("link", "delay")}, third)
    summary = run_of([*trials, *others])

    cell = corner_of(summary)

    assert cell.runner_up is not None
    assert cell.runner_up.strategy == "ps"
    assert cell.answer == answer
    assert bool(corner_patch(summary).get_hatch()) == (answer != FasterAnswer.YES)


def test_p_values_are_adjusted_for_the_number_of_cells(grid: MakeRun) -> None:
    """p = 0.02 proves one comparison, but four of them are wrong too often."""
    alone, four = grid(FAST, NEARLY), grid(FAST, NEARLY, others=(FAST, NEARLY))

    assert not corner_patch(alone).get_hatch()
    assert corner_patch(four).get_hatch()
    assert map_of(four).separated_cell_counts == {}


@pytest.mark.parametrize(("seeds", "is_separated"), [(3, False), (6, True)])
def test_a_rival_that_missed_the_target_loses_only_if_the_test_says_so(
    grid: MakeRun, seeds: int, is_separated: bool
) -> None:
    """The signed-rank test needs six pairs; a map makes no claim without a test."""
    times = [1.0 + 0.01 * seed for seed in range(seeds)]
    summary = grid(times, [None] * seeds, target=TARGET)

    cell = corner_of(summary)

    assert cell.is_separated == is_separated
    assert cell.ratio is None
    assert not cell.has_runner_up_time
    assert bool(corner_patch(summary).get_hatch()) != is_separated


def test_a_cell_in_which_no_strategy_reached_the_target_is_empty(grid: MakeRun) -> None:
    """Its times per sample are known, but another quantity than that of the other cells."""
    summary = grid([None, None, 1.0], [None, None, None], target=TARGET)

    cell, patch = corner_of(summary), corner_patch(summary)

    assert cell.winner is None
    assert cell.reason == f"no strategy reached {TARGET} in most of its trials"
    assert to_hex(patch.get_facecolor()) == BACKGROUND
    assert not patch.get_hatch()
    drawing = drawing_of(summary)
    assert [text.get_text() for text in drawing.figure.axes[0].texts].count(NO_RESULT) == 1
    assert f"At link 10mbit with delay 1ms: {cell.reason}." in drawing.caption
    assert drawing.data["winner"].tolist().count("") == 1


def test_a_cell_without_finished_trials_states_why(grid: MakeRun) -> None:
    summary = grid(FAST, SLOW)
    failed = [
        replace(trial, status="failed", status_reason="worker-1 ended") if lies_in_corner(trial) else trial
        for trial in summary.trials
    ]

    cell = corner_of(replace(summary, trials=failed))

    assert cell.winner is None
    assert cell.reason == "no trial finished: worker-1 ended"


def test_a_cell_that_did_not_run_states_why(grid: MakeRun) -> None:
    summary = grid(FAST, SLOW)
    remaining = replace(summary, trials=[trial for trial in summary.trials if not lies_in_corner(trial)])
    skipped = SkippedTrial("t", "ring", 4, "delay 1ms, link 10mbit", "no GPU on this host")

    assert corner_of(remaining).reason == "not run"
    assert corner_of(replace(remaining, skipped=[skipped])).reason == "no GPU on this host"


def test_a_strategy_that_is_missing_in_a_cell_is_named(grid: MakeRun) -> None:
    """The fastest of those that finished may not be the fastest of all."""
    assert corner_of(grid(FAST, [])).reason == "without ps, of which no trial finished"


def lies_in_corner(trial: TrialResult) -> bool:
    return (trial.labels["link"], trial.labels["delay"]) == CORNER


def test_the_title_counts_only_cells_that_a_test_separates(grid: MakeRun) -> None:
    some, none = (
        drawing_of(grid(*times, others=others)).title
        for times, others in (((FAST, CROSSING), (FAST, SLOW)), ((FAST, CROSSING), (FAST, CROSSING)))
    )
    target = drawing_of(grid(SLOW, FAST, target=TARGET)).title

    assert some == "of 4 combinations of link and delay, ring trains fastest in 3; 1 is too close to call"
    assert none == (
        "of 4 combinations of link and delay, no strategy is proven to be the fastest in any; 4 are too close to call"
    )
    assert target == f"of 4 combinations of link and delay, ring reaches {TARGET} first in 3 and ps in 1"


def test_the_title_counts_cells_without_a_test_and_without_a_result(grid: MakeRun) -> None:
    """They are neither won nor too close to call."""
    once = drawing_of(grid([1.0], [5.0])).title
    missed = drawing_of(grid([None, None, 1.0], [None, None, None], target=TARGET)).title

    assert once == "of 4 combinations of link and delay, ring trains fastest in 3; 1 has no significance test"
    assert missed == f"of 4 combinations of link and delay, ring reaches {TARGET} first in 3; 1 has no result"


@pytest.mark.parametrize("kind", ["one strategy", "one key", "three keys", "key of one strategy", "nothing finished"])
def test_other_runs_have_no_map(grid: MakeRun, kind: str) -> None:
    """Two keys span a plane; a key of one strategy has no values for the others."""
    trials = grid(FAST, SLOW).trials
    changed = {
        "one strategy": [trial for trial in trials if trial.strategy == "ring"],
        "one key": [trial for trial in trials if trial.labels["delay"] == DELAYS[0]],
        "three keys": [replace(trial, labels=trial.labels | {"batch": trial.seed}) for trial in trials],
        "key of one strategy": [
            replace(trial, labels=without_delay(trial)) if trial.strategy == "ps" else trial for trial in trials
        ],
        "nothing finished": [replace(trial, status="failed") for trial in trials],
    }

    assert make_strategy_map(run_of(trials)) is not None
    assert make_strategy_map(run_of(changed[kind])) is None


def without_delay(trial: TrialResult) -> dict[str, Any]:
    return {key: value for key, value in trial.labels.items() if key != "delay"}


def test_the_table_of_the_report_and_the_data_have_one_row_per_cell(make_run: Callable[..., RunFolder]) -> None:
    """Workers may be one of the two keys."""
    folder = make_run(
        strategies=("ring", "ps_bsp"), workers=(2, 4), conditions=("100mbit", "10mbit"), repeats=3, baseline=False
    )
    table, summary = analyse_run(folder)

    drawing = draw_strategy_map(AnalysedRun(table, summary))
    page = render_report_page(folder, summary, [])

    assert drawing is not None
    assert list(drawing.data["workers"]) == [2, 2, 4, 4]
    assert set(drawing.data["winner"]) == {"ring"}
    assert (drawing.data["ratio"] >= 1).all()
    assert "Fastest strategy over uplink and workers" in page
    assert page.count('<td>ring</td><td class="n">') >= 4
    assert "Fastest strategy over" not in render_report_page(folder, replace(summary, trials=summary.trials[:1]), [])
