"""Payload bytes of trials in which processes are killed: no process is left out, and no total is made up."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.figures.base import AnalysedRun
from analysis.figures.learning import draw_learning_curves
from analysis.metrics.bytes_sent import bytes_sent, nodes_with_uncounted_bytes
from analysis.reading.run_folder import RunFolder
from analysis.report.report import write_report
from analysis.results.analyse_run import analyse_run

MakeTrial = Callable[..., Any]
Line = Callable[..., str]
KILL = {"kind": "kill", "of": ["worker-2"], "at": {"time": "450ms"}}
REJOIN = {"on_failure": "rejoin", "restart_delay": "200ms"}


def test_all_processes_of_a_node_are_counted(
    make_trial: MakeTrial, line: Line, steps_line: Line, stop_line: Line
) -> None:
    """The first process of worker-1 is killed, the second ends, and the third is killed before it does a step."""
    start = line("node_start", {}, node="worker-1")
    killed, ended = [start, steps_line([{}, {}], "worker-1")], [start, steps_line([{}, {}, {}], "worker-1")]
    logs = {
        "worker-0": [line("node_start", {}, node="worker-0"), stop_line("worker-0", payload_bytes_sent=500)],
        "worker-1": [*killed, *ended, stop_line("worker-1", payload_bytes_sent=310), start],
    }

    trial = make_trial(logs, workers=2)

    assert bytes_sent(trial) == {"worker-0": 500, "worker-1": 200 + 310}
    assert nodes_with_uncounted_bytes(trial) == ["worker-1"]


def test_the_totals_of_restarted_processes_are_exact(make_trial: MakeTrial, line: Line, stop_line: Line) -> None:
    start = line("node_start", {}, node="server-0")
    logs = {"server-0": [start, stop_line("server-0", payload_bytes_sent=70), start, stop_line("server-0")]}

    trial = make_trial(logs)

    assert bytes_sent(trial) == {"server-0": 70 + 200}
    assert nodes_with_uncounted_bytes(trial) == []


@pytest.fixture
def killed_run(run_simulated: Callable[..., Any], tmp_path: Path) -> Callable[[dict[str, Any]], RunFolder]:
    """Runs a strategy whose worker-2 is killed and joins again."""

    def run(strategy: dict[str, Any]) -> RunFolder:
        run_simulated({"killed": strategy}, scenario_overrides={"recovery": REJOIN, "events": [KILL]})
        return RunFolder(tmp_path)

    return run


def test_the_bytes_axis_has_the_bytes_of_finished_steps(killed_run: Callable[..., RunFolder]) -> None:
    """Scaled to a total without those of the killed process, the axis would end at three quarters."""
    run, summary = analyse_run(killed_run({"kind": "all_reduce"}))
    (trial,), (result,) = run.trials, summary.trials

    drawing = draw_learning_curves(AnalysedRun(run, summary))

    assert drawing is not None
    assert result.uncounted_bytes_of == ["worker-2"]
    in_steps = trial.steps["bytes_sent"].sum()
    assert drawing.data["bytes"].max() == in_steps
    assert in_steps <= sum(result.bytes_sent.values()) < 1.1 * in_steps
    assert "only the bytes of finished steps count" in drawing.caption


def test_unknown_bytes_of_servers_are_not_drawn(killed_run: Callable[..., RunFolder]) -> None:
    """The bytes of steps are those of workers only, and the total by which they could be scaled is not known."""
    run, summary = analyse_run(killed_run({"kind": "parameter_server"}))

    drawing = draw_learning_curves(AnalysedRun(run, summary))

    assert drawing is not None
    assert drawing.data["bytes"].isna().all()
    assert "have no curve over bytes" in drawing.caption
    drawing.figure.draw_without_rendering()


def test_the_report_states_that_bytes_are_a_lower_bound(killed_run: Callable[..., RunFolder]) -> None:
    page = write_report(killed_run({"kind": "all_reduce"}).path).read_text()

    assert '<td class="n">at least ' in page
    assert "a process of a node logged no total" in page
