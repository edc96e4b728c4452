"""Only checks of deadlines, links, events and the host decide whether a trial is repeated, never its results."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.checks.host_disturbance import find_host_disturbance
from analysis.reading.run_table import RunLogTables
from services.runtime.run_log import LOG_LINE_PREFIX

QUIET_HOST = {"cpu_busy": 0.2, "cpu_steal": 0.0, "pressure": {"cpu": 0.1}, "canary_late_ms": {"p99": 0.2}}


@pytest.fixture
def local_trial(run_simulated: Callable[..., RunLogTables]) -> Path:
    """Folder of a complete trial that its status attributes to a quiet host on the engine `local`."""
    run = run_simulated({"ring": {"kind": "all_reduce"}}, workers=2, workload={"epochs": 1})
    trial_folder = run.folder.path / "trials" / run.trials[0].plan.trial
    write_status(trial_folder)
    return trial_folder


def write_status(trial_folder: Path, engine: str = "local", **changed_host_metrics: Any) -> None:
    shaping = {f"worker-{rank}": {"rung": "transport"} for rank in range(2)}
    status = {"status": "success", "engine": engine, "shaping": shaping, "host": QUIET_HOST | changed_host_metrics}
    (trial_folder / "status.json").write_text(json.dumps(status))


def change_log_events(trial_folder: Path, key: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the log events with a key in the log of the first worker."""
    path = trial_folder / "logs" / "worker-0.log"
    lines = [line.partition(LOG_LINE_PREFIX) for line in path.read_text().splitlines()]
    events = [(before, json.loads(event)) for before, _, event in lines]
    for _, event in events:
        if event["key"] == key:
            change(event["value"])
    path.write_text("".join(f"{before}{LOG_LINE_PREFIX}{json.dumps(event)}\n" for before, event in events))


def test_a_trial_on_a_quiet_host_is_not_disturbed(local_trial: Path) -> None:
    assert find_host_disturbance(local_trial) == ""


@pytest.mark.parametrize(
    ("host_metrics", "reason"),
    [
        ({"cpu_busy": 0.99}, "the host's CPU was 99% busy"),
        ({"cpu_steal": 0.3}, "the hypervisor gave 30% of the host's CPU time"),
        ({"pressure": {"memory": 0.5}}, "tasks waited for memory 50% of the time"),
        ({"canary_late_ms": {"p99": 50.0}}, "a thread that only sleeps woke 50 ms late"),
    ],
)
def test_a_busy_host_is_a_disturbance(local_trial: Path, host_metrics: dict[str, Any], reason: str) -> None:
    write_status(local_trial, **host_metrics)

    assert find_host_disturbance(local_trial).startswith(reason)


def test_missed_deadlines_are_a_disturbance(local_trial: Path) -> None:
    change_log_events(local_trial, "node_stop", lambda value: value.update(deadlines=10, missed_deadlines=9))

    assert "of the deadlines were missed" in find_host_disturbance(local_trial)


def test_all_disturbances_of_a_trial_are_listed(local_trial: Path) -> None:
    write_status(local_trial, cpu_busy=0.99, canary_late_ms={"p99": 50.0})

    assert find_host_disturbance(local_trial) == (
        "the host's CPU was 99% busy (limit 90%); a thread that only sleeps woke 50 ms late at the 99th percentile "
        "(limit 5 ms)"
    )


def test_long_steps_are_no_disturbance(local_trial: Path) -> None:
    """The step time is a result: trials that are repeated until it is short would be too fast on average."""

    def lengthen_steps(batch: dict[str, Any]) -> None:
        column = batch["columns"].index("step_s")
        for row in batch["rows"]:
            row[column] *= 3

    change_log_events(local_trial, "node_steps", lengthen_steps)

    assert find_host_disturbance(local_trial) == ""


def test_unrecorded_metrics_of_the_host_are_no_disturbance(local_trial: Path) -> None:
    """They are unrecorded in the next attempt, too."""
    write_status(local_trial, cpu_busy=None, canary_late_ms={})

    assert find_host_disturbance(local_trial) == ""


def test_virtual_time_is_never_disturbed(local_trial: Path) -> None:
    write_status(local_trial, "simulated", cpu_busy=0.99)

    assert find_host_disturbance(local_trial) == ""


def test_damaged_files_are_no_disturbance(local_trial: Path) -> None:
    (local_trial / "plan.json").write_text("{")

    assert find_host_disturbance(local_trial) == ""
