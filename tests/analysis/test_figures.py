"""Figures: nothing that is drawn may lie outside the frame."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from analysis import report
from analysis.figures import FIGURES, Drawing, Run
from analysis.figures.efficiency import efficiency
from analysis.figures.learning import learning
from analysis.figures.predicted import predicted
from analysis.figures.predicted_speedup import predicted_speedup
from analysis.figures.step_breakdown import step_breakdown
from analysis.folder import RunFolder, TrialFolder
from analysis.summary import judge, summarise
from analysis.table import read_run

RunWriter = Callable[..., RunFolder]
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


def test_the_closed_form_of_workers_that_do_not_wait_is_compared_with_the_step_that_most_of_them_take(
    make_run: Callable[..., RunFolder],
) -> None:
    """A third worker that is far slower changes neither the median step nor what it is compared with."""
    folder = make_run(strategies=("ring", "ps_asp"), workers=(2,), baseline=False)
    for trial in folder.trials:
        planned = json.loads(trial.plan.read_text())
        own = sum(planned["predicted"][part] for part in ("compute_s", "exchange_s"))
        planned["predicted"] |= {"exchange_s": 1.0, "steps_s": [own, own, 10 * own]}
        trial.plan.write_text(json.dumps(planned))
    table = read_run(folder)
    numbers = summarise(table, judge(table))

    drawing = predicted(Run(table, numbers))

    assert drawing is not None
    assert list(drawing.data["predicted_step_s"]) == [trial.predicted_step_seconds for trial in numbers.trials]
    assert all(0.5 < 1 + remainder < 1.2 for remainder in drawing.data["remainder"])


def test_speedups_stand_beside_those_of_the_closed_forms(make_run: Callable[..., RunFolder]) -> None:
    """One row per strategy and number of workers; the forms' are predicted seconds of the base over those of N."""
    folder = make_run(strategies=("ring", "ps_bsp"), workers=(1, 2, 4))
    table = read_run(folder)
    numbers = summarise(table, judge(table))

    drawing = predicted_speedup(Run(table, numbers))

    assert drawing is not None
    told = {(trial.plan.label, trial.plan.workers): 1 / trial.plan.predicted_s for trial in table.trials}
    rates = {(trial.strategy, trial.workers): trial.samples_per_second or 0.0 for trial in numbers.trials}
    shown = drawing.data.set_index(["strategy", "workers"])
    for kind in [key for key in told if key[1] > 1]:
        assert shown["predicted_speedup"][kind] == pytest.approx(told[kind] / told["baseline", 1])
        assert shown["measured_speedup"][kind] == pytest.approx(rates[kind] / rates["baseline", 1])
    assert re.match(r"Ring: \S+ times on 4 workers, the closed form says \S+", drawing.title)


def test_no_speedup_is_foretold_for_one_number_of_workers(make_run: Callable[..., RunFolder]) -> None:
    """Nothing grows."""
    table = read_run(make_run(strategies=("ring",), workers=(4,)))

    assert predicted_speedup(Run(table, summarise(table, judge(table)))) is None


def test_two_curves_of_a_strategy_are_told_apart_by_their_conditions(make_run: Callable[..., RunFolder]) -> None:
    """Otherwise a title says that ring keeps 92 % and that ring keeps 60 %."""
    folder = make_run(strategies=("ring",), workers=(1, 2, 4), conditions=("100mbit", "10mbit"))
    for trial in folder.trials:
        if "10mbit" in trial.plan.read_text().replace("100mbit", ""):
            _twice_as_long(trial)
    table = read_run(folder)

    drawing = efficiency(Run(table, summarise(table, judge(table))))

    assert drawing is not None
    assert re.match(r"ring \(uplink 100mbit\) keeps .*; ring \(uplink 10mbit\) keeps ", drawing.title)


def _twice_as_long(trial: TrialFolder) -> None:
    """All steps of more than one worker, and so their end."""
    if json.loads(trial.plan.read_text())["workers"] == 1:
        return
    log = trial.log("coordinator")
    log.write_text(re.sub(r'"time_ms": ([0-9.]+)', lambda found: _later(float(found[1])), log.read_text()))


def _later(time_ms: float) -> str:
    return f'"time_ms": {100_000 + 2 * (time_ms - 100_000)}'


def test_strategies_stand_by_their_steps_where_nothing_else_differs(run_writer: RunWriter, tmp_path: Path) -> None:
    """The eye compares neighbours; where workers are swept, a strategy's rows stay together."""

    def shown(*workers: int) -> list[str]:
        table = read_run(run_writer(tmp_path / str(workers), strategies=("ps_bsp", "ring"), workers=workers))
        drawing = step_breakdown(Run(table, summarise(table, judge(table))))
        return [] if drawing is None else list(drawing.data["strategy"])

    assert shown(4) == ["ring", "baseline", "ps_bsp"]
    assert shown(2, 4) == ["baseline", "ps_bsp", "ps_bsp", "ring", "ring"]


def test_many_strategies_keep_their_names_inside_the_page(make_run: Callable[..., RunFolder]) -> None:
    """A key of fourteen names in one line ends beyond the edge."""
    labels = tuple(f"parameter_server_{number}" for number in range(14))
    table = read_run(make_run(strategies=labels, workers=(2,)))

    drawing = learning(Run(table, summarise(table, judge(table))))

    assert drawing is not None
    drawing.figure.draw_without_rendering()
    (key,) = drawing.figure.legends
    shown, page = key.get_window_extent(), drawing.figure.bbox
    assert page.x0 <= shown.x0
    assert shown.x1 <= page.x1
    assert shown.y0 >= max(axes.get_window_extent().y1 for axes in drawing.figure.axes)
    assert len({str(patch.get_facecolor()) for patch in key.get_patches()}) == 15
