"""Devices in containers: a quota is what was asked for, and events reach workers."""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import pytest

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_engine")]

RunTrial: TypeAlias = Callable[..., Any]

DEVICES = """
name: devices
workload:
  dataset: {kind: synthetic_regression, samples: 1600, features: 64, outputs: 10}
  model: {kind: mlp, hidden: [64]}
  optimiser: {kind: sgd, rate: 0.01}
  batch: 32
  epochs: 1
cluster:
  workers: 2
  groups: [{name: part, ranks: [1], cpus: 0.5}]
  worker: {throughput: 320/s}
strategies:
  ring: {kind: all_reduce}
events:
  - {kind: slowdown, of: [worker-0], factor: 3, at: {step: 5}, lasts: 500ms}
  - {kind: pause, of: [worker-1], at: {time: 1500ms}, lasts: 400ms}
"""


@pytest.mark.slow
@pytest.mark.wall_clock
def test_quotas_are_measured_and_events_applied(run_trial: RunTrial, tmp_path: Path) -> None:
    """Half a core does half the work; a slowdown and a pause are applied in time, logged, and seen in the steps."""
    path = tmp_path / "devices.yaml"
    path.write_text(DEVICES)

    trial = run_trial("docker", path, "ring")

    half = trial.value("worker-1", "node_start")
    assert half["speed_ratio"] == pytest.approx(0.5, rel=0.15)
    assert half["kernel_s"] > 0
    for rank, kind in ((0, "slowdown"), (1, "pause")):
        values = [event["value"] for event in trial.events(f"worker-{rank}", "event_applied")]
        assert [(value["kind"], value["phase"]) for value in values] == [(kind, "begin"), (kind, "end")]
        assert all(value["by"] == "worker" and 0 <= value["lateness_s"] < 0.05 for value in values)
    rows = trial.rows("worker-0", "node_steps")
    usual = median(row["step_s"] for row in rows)
    assert rows[5]["compute_s"] == pytest.approx(3 * 0.05, rel=0.1)
    assert sum(row["step_s"] > usual + 0.3 for row in rows) == 1, "one step waits for the paused worker"
