"""Trials in processes and containers that continue from the checkpoint of an earlier trial on other workers."""

import json
from pathlib import Path
from typing import Any

import pytest
from fault_runs import run_faults

from compose.runs.run import FinishedRun
from services.runtime.run_log import LOG_LINE_PREFIX

STRATEGIES: dict[str, dict[str, Any]] = {"ring": {"kind": "all_reduce"}, "ps": {"kind": "parameter_server"}}


def coordinator_events(run: FinishedRun, key: str) -> list[dict[str, Any]]:
    [log] = run.folder.glob("trials/*/logs/coordinator.log")
    lines = (line for line in log.read_text().splitlines() if line.startswith(LOG_LINE_PREFIX))
    events = (json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in lines)
    return [event for event in events if event["key"] == key]


def run_trial(folder: Path, engine: str, strategy: str, workers: int, **checkpoint: Any) -> FinishedRun:
    """Run 40 steps with 8 samples per step on paced workers."""
    folder.mkdir()
    cluster = {"workers": workers, "worker": {"throughput": "80/s"}}
    # On a busy host, nodes may be silent for seconds.
    recovery = {"heartbeat_timeout": "10s", "checkpoint": {"steps": 15, **checkpoint}}
    timeouts = {"start": "180s"}  # a busy host starts five containers slowly
    keys = {"recovery": recovery, "cluster": cluster, "timeouts": timeouts, "attempts": 1}
    run = run_faults(folder, engine, [], {strategy: STRATEGIES[strategy]}, **keys)
    assert [outcome.status for outcome in run.statuses] == ["success"], run.statuses
    return run


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_training_continues_on_the_same_and_on_fewer_workers(tmp_path: Path, engine: str, strategy: str) -> None:
    """Every step has the same 8 samples. On the same workers, the parameters have the same bits, too.

    On another number of workers, sums are computed in another order: losses differ by rounding.
    """
    first, *fewer = (2,) if engine == "docker" else (4, 1)
    earlier = run_trial(tmp_path / "earlier", engine, strategy, first)
    [earlier_folder] = earlier.folder.glob("trials/*")
    loss = coordinator_events(earlier, "eval_metrics")[-1]["value"]["loss"]

    for workers in (first, *fewer):
        run = run_trial(tmp_path / str(workers), engine, strategy, workers, initial=str(earlier_folder))

        [continued] = coordinator_events(run, "training_continued")
        assert (continued["metadata"]["step"], continued["value"]["workers"]) == (30, first)
        assert coordinator_events(run, "run_stop")[0]["metadata"]["samples_count"] == 320
        assert coordinator_events(run, "eval_metrics")[-1]["value"]["loss"] == pytest.approx(loss, rel=1e-6)
        digests = [coordinator_events(each, "params_sha256")[0]["value"] for each in (run, earlier)]
        assert (digests[0] == digests[1]) or workers != first
