"""Figure `timeline`: repeated steps are drawn apart, and the title is true for every position of events."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.timeline import draw_step_times_with_events
from analysis.reading.run_folder import RunFolder
from analysis.results.analyse_run import analyse_run

RESTORE = {"on_failure": "restore", "restart_delay": "200ms", "heartbeat_timeout": "200ms", "checkpoint": {"steps": 6}}
KILL = {"kind": "kill", "of": ["worker-1"], "at": {"time": "600ms"}}
SLOWDOWN = {"kind": "slowdown", "of": ["worker-0"], "factor": 2.0}
DISK_FULL = {"kind": "disk_full", "of": ["worker-0"]}


@pytest.fixture
def timeline_of(run_simulated: Callable[..., Any], tmp_path: Path) -> Callable[..., CaptionedFigure]:
    """Draws the figure of a ring on four workers with events."""

    def draw(*events: dict[str, Any]) -> CaptionedFigure:
        run_simulated(
            {"ring": {"kind": "all_reduce"}}, scenario_overrides={"events": list(events), "recovery": RESTORE}
        )
        drawing = draw_step_times_with_events(AnalysedRun(*analyse_run(RunFolder(tmp_path))))
        assert drawing is not None
        return drawing

    return draw


def test_a_step_and_its_repetition_are_two_points(timeline_of: Callable[..., CaptionedFigure]) -> None:
    """Their mean would lie in the pause between them, at a time at which no worker trained."""
    steps = timeline_of(KILL).data

    counts = steps["step"].value_counts()
    assert set(counts) == {1, 2}
    assert steps["start_s"].is_monotonic_increasing
    assert (steps["end_s"] - steps["start_s"]).to_numpy() == pytest.approx(steps["step_s"].to_numpy(), rel=1e-3)
    repeated = steps[steps["step"].isin(counts[counts == 2].index)]
    assert not repeated["start_s"].between(0.55, 0.79).any()


@pytest.mark.parametrize(
    ("events", "title"),
    [
        ([SLOWDOWN | {"at": {"time": "1ns"}}], "All steps overlap with events"),
        ([DISK_FULL | {"at": {"time": "300ms"}}], "The events change no times of steps"),
        ([SLOWDOWN | {"at": {"time": "5s"}}], "No step took place during an event"),
        (
            [SLOWDOWN | {"at": {"time": "600ms"}}, DISK_FULL | {"at": {"time": "1ns"}}],
            "While events last, a step of ring",
        ),
    ],
)
def test_the_title_is_true_wherever_events_lie(
    timeline_of: Callable[..., CaptionedFigure], events: list[dict[str, Any]], title: str
) -> None:
    assert timeline_of(*events).title.startswith(title)
