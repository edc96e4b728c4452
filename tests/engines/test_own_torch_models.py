"""A user's module of PyTorch on engines that run nodes as processes or containers."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from user_code import OWN_MODELS

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RunTrial: TypeAlias = Callable[..., Any]

SCENARIO = """
name: mine
workload:
  dataset: {kind: synthetic_regression, samples: 100, features: 4, outputs: 2, hidden: 8}
  model: {kind: torch, module: "torch_nets.py:Values"}
  optimiser: {kind: momentum, rate: 0.05}
  batch: 13
  epochs: 3
  stop: budget
cluster:
  workers: 2
  worker: {throughput: 100/s, uplink: 100mbit, downlink: 100mbit}
  server: {uplink: 100mbit, downlink: 100mbit}
strategies:
  server: {kind: parameter_server}
"""


def test_nodes_train_a_module_as_in_the_simulation(
    run_trial: RunTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """Containers import PyTorch from the packages of the host, with their own NumPy."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(OWN_MODELS, tmp_path / "mine", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "mine" / "mine.yaml"
    path.write_text(SCENARIO)

    real, simulated = (run_trial(name, path, "server", hash_every_step=True) for name in (engine, "simulated"))

    replicas = [real.hashes(f"worker-{rank}") for rank in range(2)]
    losses = [trial.events("coordinator", "eval_metrics")[-1]["value"]["loss"] for trial in (real, simulated)]
    assert len(set(replicas[0].values())) == real.plan.steps >= 20, "every step changes the parameters"
    assert replicas == [replicas[0]] * 2
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)  # containers may have another libm


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-4), ("fp64", 1e-10)])
def test_four_workers_train_a_module_as_one_worker_with_the_whole_batch(
    run_trial: RunTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, precision: str, tolerance: float
) -> None:
    """Each node has a module of its own, and computes a quarter of the batch, 13 = 4 + 3 + 3 + 3."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(OWN_MODELS, tmp_path / "mine", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "mine" / "mine.yaml"
    path.write_text(
        SCENARIO.replace("workers: 2", "workers: 4").replace("{kind: parameter_server}", "{kind: all_reduce}")
    )

    ring, serial = (run_trial(engine, path, name, workload__precision=precision) for name in ("server", "none"))

    losses = [
        [event["value"]["loss"] for event in trial.events("coordinator", "eval_metrics")] for trial in (ring, serial)
    ]
    assert [len(trial.plan.node_plans_of_role("worker")) for trial in (ring, serial)] == [4, 1]
    assert len(losses[0]) >= 3
    assert losses[1][-1] < 0.9 * losses[1][0], "the model learns"
    assert losses[0] == pytest.approx(losses[1], rel=tolerance)
