"""Devices in containers: CPU quotas have the declared effect, and events reach the workers."""

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
def test_cpu_quotas_are_measured_and_device_events_are_applied(run_trial: RunTrial, tmp_path: Path) -> None:
    """Half a core does half the work; a slowdown and a pause are applied in time, logged, and visible in the steps."""
    path = tmp_path / "devices.yaml"
    path.write_text(DEVICES)

    trial = run_trial("docker", path, "ring")

    half_core_start = trial.value("worker-1", "node_start")
    assert half_core_start["speed_ratio"] == pytest.approx(0.5, rel=0.15)
    assert half_core_start["kernel_s"] > 0
    for rank, kind in ((0, "slowdown"), (1, "pause")):
        values = [event["value"] for event in trial.events(f"worker-{rank}", "event_applied")]
        assert [(value["kind"], value["phase"]) for value in values] == [(kind, "begin"), (kind, "end")]
        assert all(value["by"] == "worker" and 0 <= value["lateness_s"] < 0.05 for value in values)
    rows = trial.rows("worker-0", "node_steps")
    median_step_s = median(row["step_s"] for row in rows)
    assert rows[5]["compute_s"] == pytest.approx(3 * 0.05, rel=0.1)
    assert sum(row["step_s"] > median_step_s + 0.3 for row in rows) == 1, "one step waits for the paused worker"
