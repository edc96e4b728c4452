"""Steps of the wall clock during a run: durations and moments come from the monotonic clock."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fault_runs import run_faults
from scripted_engine import RunObserverStub

from analysis.reading.run_folder import RunFolder
from analysis.results.analyse_run import analyse_run
from compose.engines.local import NodeProcesses
from services.plan import Plan

HOUR_S = 3600.0
NODES_START = "start of the nodes"
# Python imports this module when it starts. The step is read at every call, so all processes see it at once. gRPC gets
# the time without the step: it makes absolute deadlines of it, which its core compares with a clock that no module of
# Python can change.
CLOCK_MODULE = """
import sys
import time
from pathlib import Path

step_file, read_clock = Path(__file__).with_name("step_s"), time.time


def read_clock_with_step():
    is_grpc = str(sys._getframe(1).f_globals.get("__name__")).startswith("grpc")
    return read_clock() + (0.0 if is_grpc else float(step_file.read_text()))


time.time = read_clock_with_step
"""


class ClockStep(RunObserverStub):
    """Observer that sets the wall clock when the coordinator logs an event."""

    def __init__(self, step_file: Path, key: str, step_s: float) -> None:
        super().__init__()
        self.step_file, self.key, self.step_s = step_file, key, step_s

    def coordinator_event_logged(self, plan: Plan, log_event: Mapping[str, Any]) -> None:
        if log_event["key"] == self.key:
            self.step_file.write_text(f"{self.step_s}")


@pytest.fixture
def step_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Add a step to the wall clock of the nodes and of this process; the file has it in seconds."""
    folder = tmp_path / "clock"
    folder.mkdir()
    path = folder / "step_s"
    path.write_text("0")
    (folder / "sitecustomize.py").write_text(CLOCK_MODULE)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    read_clock = time.time
    monkeypatch.setattr(time, "time", lambda: read_clock() + float(path.read_text()))
    return path


@pytest.mark.parametrize(
    ("moment", "step_s"),
    [(NODES_START, HOUR_S), (NODES_START, -HOUR_S), ("run_start", HOUR_S), ("event_due", -HOUR_S)],
)
def test_a_step_of_the_wall_clock_changes_no_duration_and_no_moment(
    tmp_path: Path, step_file: Path, monkeypatch: pytest.MonkeyPatch, moment: str, step_s: float
) -> None:
    """An hour forward would exceed every timeout, and an hour back would delay a stop beyond the end of training."""
    start_nodes = NodeProcesses.start

    def set_clock_and_start_nodes(nodes: NodeProcesses) -> None:
        if moment == NODES_START:  # the runner has read its clock before, and the nodes read theirs after
            step_file.write_text(f"{step_s}")
        start_nodes(nodes)

    monkeypatch.setattr(NodeProcesses, "start", set_clock_and_start_nodes)
    events = [
        {"kind": "stop", "of": ["worker-1"], "at": {"time": "500ms"}, "lasts": "400ms"},
        {"kind": "stop", "of": ["worker-0"], "at": {"step": 20}, "lasts": "400ms"},
    ]

    run = run_faults(
        tmp_path, "local", events, {"ps": {"kind": "parameter_server"}}, ClockStep(step_file, moment, step_s)
    )

    (outcome,) = run.statuses
    assert (outcome.status, outcome.reason) == ("success", "")
    assert step_file.read_text() == f"{step_s}"
    (path,) = run.folder.glob("trials/*/events.jsonl")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(record["number"], record["phase"]) for record in records] == [
        (number, phase) for number in (0, 1) for phase in ("begin", "end")
    ]
    assert records[0]["planned_s"] == pytest.approx(0.5)
    assert all(0 <= record["lateness_s"] < 1 for record in records)
    tables, _ = analyse_run(RunFolder(run.folder))
    assert 0 < tables.steps["step_s"].min() <= tables.steps["step_s"].max() < 5
    assert 0 < outcome.timings_s["run"] < 60
