"""Figure of the goodput: one curve per policy, the closed form beside it, and no figure without such data."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.figures import AnalysedRun
from analysis.figures.drawing.style import figure_style_context
from analysis.figures.goodput import CaptionedFigure, draw_goodput
from analysis.figures.step_breakdown import CHECKPOINT_PART, draw_step_breakdown
from analysis.report.wording import format_number
from analysis.results.analyse_run import analyse_run
from tests.support.failing_runs import CHECKPOINT_S, FAILURE_KEY, write_failing_run

MakeRun = Callable[..., AnalysedRun]


@pytest.fixture
def failing_run(tmp_path: Path) -> MakeRun:
    """Analyses a run with failures; their mean interval is that of the swept value."""

    def make(**options: Any) -> AnalysedRun:
        tables, summary = analyse_run(write_failing_run(tmp_path / str(len(list(tmp_path.iterdir()))), **options))
        trials = [
            replace(trial, failure_interval_s=float(str(trial.labels[FAILURE_KEY])[:-1])) for trial in summary.trials
        ]
        return AnalysedRun(tables, replace(summary, trials=trials))

    return make


def draw(run: AnalysedRun) -> CaptionedFigure:
    with figure_style_context():
        figure = draw_goodput(run)
    assert figure is not None
    return figure


def test_measured_goodput_agrees_with_the_closed_form(failing_run: MakeRun) -> None:
    """Each policy has a curve and a dashed closed form; all trials are dots, and their means are near the form."""
    figure = draw(failing_run(mtbfs_s=(30.0, 120.0), repeats=8, steps=400))

    data = figure.data.groupby(["policy", "failure_interval_s"])[["goodput", "expected_goodput"]]
    errors = (data.mean()["goodput"] - data.mean()["expected_goodput"]).abs()
    assert (errors < 4 * data.std()["goodput"] / np.sqrt(8)).all(), errors
    (axes,) = figure.figure.axes
    dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert len(dashed) == 3
    assert len(figure.data) == 3 * 2 * 8
    assert sum(len(line.get_xdata()) for line in axes.lines if line.get_markersize() == 3) == len(figure.data)


def test_title_names_the_policies_from_best_to_worst(failing_run: MakeRun) -> None:
    """The title is a claim about the highest failure rate."""
    figure = draw(failing_run(mtbfs_s=(15.0, 240.0), repeats=2, steps=200))

    worst = figure.data[figure.data["failure_interval_s"] == 15.0].groupby("policy")["goodput"].mean()
    names = worst.sort_values(ascending=False).index.tolist()
    assert figure.title.startswith("With a failure every 15.0 s on average, mean goodput is ")
    assert sorted(names, key=figure.title.index) == names


def test_swept_checkpoint_intervals_have_the_optimum_of_young_and_daly(failing_run: MakeRun) -> None:
    """√(2 · 1 s · 60 s) is 11 s, 22 steps of 0.5 s; Daly's interval is shorter."""
    figure = draw(
        failing_run(policies=("restore",), mtbfs_s=(60.0,), checkpoint_steps=(5, 20, 160), repeats=2, steps=320)
    )

    (axes,) = figure.figure.axes
    young, daly = ([line for line in axes.lines if line.get_linestyle() == style] for style in (":", "-."))
    assert np.asarray(young[0].get_xdata())[0] == pytest.approx(np.sqrt(2 * CHECKPOINT_S * 60) / 0.5, rel=0.01)
    assert np.asarray(daly[0].get_xdata())[0] < np.asarray(young[0].get_xdata())[0]
    best = figure.data.groupby("checkpoint_interval_steps")["goodput"].mean().idxmax()
    assert figure.title.endswith(f"with a checkpoint every {best} steps")


def test_intervals_in_seconds_have_their_own_axis(failing_run: MakeRun) -> None:
    """√(2 · 1 s · 60 s) is 11 s, and the closed form is that of the same intervals in steps of 0.5 s."""
    options: dict[str, Any] = {"policies": ("restore",), "mtbfs_s": (60.0,), "checkpoint_steps": (5, 20, 160)}
    options |= {"repeats": 2, "steps": 320}
    figure = draw(failing_run(**options, declares_seconds=True))
    in_steps = draw(failing_run(**options))

    (axes,) = figure.figure.axes
    assert axes.get_xlabel() == "checkpoint interval, virtual s"
    young, daly = ([line for line in axes.lines if line.get_linestyle() == style] for style in (":", "-."))
    assert np.asarray(young[0].get_xdata())[0] == pytest.approx(np.sqrt(2 * CHECKPOINT_S * 60), rel=0.01)
    assert np.asarray(daly[0].get_xdata())[0] < np.asarray(young[0].get_xdata())[0]
    assert sorted(figure.data["checkpoint_interval_s"].unique()) == [2.5, 10.0, 80.0]
    assert figure.data["checkpoint_interval_steps"].isna().all()
    assert figure.data["expected_goodput"].tolist() == pytest.approx(in_steps.data["expected_goodput"].tolist())
    best = figure.data.groupby("checkpoint_interval_s")["goodput"].mean().idxmax()
    assert figure.title.endswith(f"with a checkpoint every {best} s")
    assert "up to two exchange periods later" in figure.caption
    assert "up to two exchange periods later" not in in_steps.caption


def test_failures_of_each_group_are_counted(failing_run: MakeRun) -> None:
    """A goodput near 100 % means little if no failure took place: one every 10,000,000 s never does."""
    run = failing_run(policies=("continue", "restore"), mtbfs_s=(20.0, 1e7), repeats=2, steps=80)

    figure = draw(run)

    losses = [len(trial.node_losses) for trial in run.summary.trials]
    assert sum(losses) > 0
    assert figure.data["failures"].tolist() == losses
    counts = figure.data.groupby(["policy", "failure_interval_s"])["failures"].sum().to_dict()
    for (policy, mtbf_s), count in counts.items():
        assert f"{policy} (one every {format_number(mtbf_s)} s declared): {count}" in figure.caption
        rows = figure.data[(figure.data["policy"] == policy) & (figure.data["failure_interval_s"] == mtbf_s)]
        assert rows["group_failures"].tolist() == [count] * 2
    assert "take no virtual time" in figure.caption
    assert "take no virtual time" not in draw(replace(run, summary=replace(run.summary, engine="docker"))).caption


def test_without_a_second_rate_or_interval_there_is_no_figure(failing_run: MakeRun) -> None:
    run = failing_run(mtbfs_s=(60.0,), repeats=1, steps=60)

    assert draw_goodput(run) is None


def test_policies_without_measured_failures_have_no_closed_form(failing_run: MakeRun) -> None:
    """Its costs would be invented."""
    figure = draw(failing_run(policies=("continue",), mtbfs_s=(1e7, 1e8), repeats=1, steps=20))

    (axes,) = figure.figure.axes
    assert not [line for line in axes.lines if line.get_linestyle() == "--"]
    assert figure.data["expected_goodput"].isna().all()


def test_step_breakdown_shows_checkpoints_where_there_are_any(failing_run: MakeRun) -> None:
    """One second every 10 steps is 0.1 s per step; steps that are lost count as steps."""
    run = failing_run(policies=("restore", "continue"), mtbfs_s=(1e7,), checkpoint_steps=(10,), repeats=1, steps=20)

    with figure_style_context():
        figure = draw_step_breakdown(run)
        assert figure is not None
        seconds = figure.data.set_index("condition")["checkpoint_s"]
        assert seconds[seconds.index.str.contains("restore")].tolist() == [pytest.approx(0.1)]
        assert seconds[seconds.index.str.contains("continue")].isna().all()
        assert "Checkpoint:" in figure.caption
        without = replace(run.summary, trials=[t for t in run.summary.trials if t.failure_policy == "continue"])
        plain = draw_step_breakdown(replace(run, summary=without))
    assert plain is not None
    assert "Checkpoint:" not in plain.caption
    assert CHECKPOINT_PART in [text.get_text() for text in figure.figure.legends[0].get_texts()]
    assert CHECKPOINT_PART not in [text.get_text() for text in plain.figure.legends[0].get_texts()]
