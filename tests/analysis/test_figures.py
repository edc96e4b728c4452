"""Figures: nothing that is drawn may lie outside the frame."""

import json
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from matplotlib.axes import Axes

from analysis import report
from analysis.figures import FIGURES, Drawing, Run
from analysis.figures.predicted import predicted
from analysis.folder import RunFolder, TrialFolder
from analysis.summary import judge, summarise
from analysis.table import read_run

PIXEL = 1.0  # about half a line's width


@pytest.fixture
def unlike(make_run: Callable[..., RunFolder], line: Callable[..., str]) -> Callable[..., list[Drawing]]:
    """All drawings of a run on 1, 2 and 4 workers under two conditions, with a slow-down in each that lasts."""

    def drawn(*strategies: str) -> list[Drawing]:
        folder = make_run(strategies=strategies, conditions=("100mbit", "10mbit"))
        for trial in folder.trials:
            _slow_down(trial, line)
        _switch(folder.trials[-1], line)
        table = read_run(folder)
        return report.draw(Run(table, summarise(table, judge(table))))

    return drawn


def _slow_down(trial: TrialFolder, line: Callable[..., str]) -> None:
    planned = json.loads(trial.plan.read_text())
    what = {"kind": "slowdown", "at": {"time": "200ms"}, "of": ["worker-0"], "factor": 3.0}
    planned["events"] = [{"number": 0, "time_s": 0.2, "step": None, "what": what}]
    trial.plan.write_text(json.dumps(planned))
    applied = {"number": 0, "kind": "slowdown", "planned_s": 0.2, "applied_s": 0.2, "lateness_s": 0.0, "phase": "begin"}
    with trial.log("worker-0").open("a") as log:
        log.write(line("event_applied", applied | {"by": "worker-0"}, 100.2, "worker-0") + "\n")


def _switch(trial: TrialFolder, line: Callable[..., str]) -> None:
    """Half a second into the trial another strategy takes over."""
    planned = json.loads(trial.plan.read_text())
    same = {key: planned[key] for key in ("predicted", "bytes_per_step")}
    planned["after"] = same | {"synchronous": False, "latencies_s": [0.002, 0.001], "hand_over_bytes": {}}
    trial.plan.write_text(json.dumps(planned))
    committed = {"step": 10, "samples": 100, "seconds": 0.01, "loaded": False}
    with trial.log("coordinator").open("a") as log:
        log.write(line("switch_committed", committed, 100.5) + "\n")


@pytest.mark.parametrize("strategies", [("ring", "ps_bsp", "ps_asp"), ("ps_bsp", "ps_asp", "ring")])
def test_all_lines_lie_inside_their_frame(unlike: Callable[..., list[Drawing]], strategies: tuple[str, ...]) -> None:
    """Panels that share an axis differ: the shorter or lower one must not set the limits, whichever comes first."""
    drawings = unlike(*strategies)

    outside = [f"{drawing.name}: {found}" for drawing in drawings for found in _outside(drawing)]

    assert len(drawings) == len(FIGURES)
    assert outside == []


def _outside(drawing: Drawing) -> Iterator[str]:
    drawing.figure.draw_without_rendering()
    for axes in drawing.figure.axes:
        yield from (f"{axes.get_title()} ends before {found}" for found in _beyond(axes))


def _beyond(axes: Axes) -> Iterator[list[float]]:
    """The first point of every line that lies outside; places in pixels, so that it holds for any scale."""
    low, high = np.asarray(axes.bbox.min) - PIXEL, np.asarray(axes.bbox.max) + PIXEL
    for line in axes.lines:
        points = np.asarray(line.get_xydata(), dtype=float)
        places = line.get_transform().transform(points)
        beyond = np.any((places < low) | (places > high), axis=1)
        yield from points[beyond][:1].tolist()


def test_the_closed_form_is_not_blamed_for_workers_that_differ_and_do_not_wait(
    make_run: Callable[..., RunFolder],
) -> None:
    """It tells the slowest worker's step, which nobody waits for: such rows are marked and left out of the title."""
    folder = make_run(strategies=("ring", "ps_asp"), workers=(2,), baseline=False)
    for trial in folder.trials:
        planned = json.loads(trial.plan.read_text())
        planned["nodes"][1]["throughput"] /= 2
        trial.plan.write_text(json.dumps(planned))
    table = read_run(folder)

    drawing = predicted(Run(table, summarise(table, judge(table))))

    assert drawing is not None
    assert "ring" in drawing.title
    assert "ps_asp" not in drawing.title
    assert [label.get_text()[-1] for label in drawing.figure.axes[0].get_yticklabels()] == ["2", "*"]
