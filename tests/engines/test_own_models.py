"""A user's model on engines that run nodes as processes or containers."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from user_code import OWN_MODELS

RunTrial: TypeAlias = Callable[..., Any]

SCENARIO = """
name: mine
workload:
  dataset: {kind: synthetic_regression, samples: 100, features: 4, outputs: 2, hidden: 8}
  model: {kind: python, module: "perceptron.py:Perceptron", arguments: {hidden: 5}}
  optimiser: {kind: momentum, rate: 0.05}
  batch: 13
  epochs: 3
  stop: budget
cluster:
  workers: 3
  worker: {throughput: 1000/s, uplink: 100mbit, downlink: 100mbit}
  server: {uplink: 100mbit, downlink: 100mbit}
strategies:
  ring: {kind: all_reduce, collective: {kind: ring}}
  two: {kind: parameter_server, servers: 2}
"""


@pytest.mark.side_by_side
@pytest.mark.parametrize("strategy", ["ring", "two"])
def test_nodes_train_a_users_model_as_in_the_simulation(
    run_trial: RunTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, strategy: str
) -> None:
    """Coordinator, servers and workers import the copy of the code."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(OWN_MODELS, tmp_path / "mine", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "mine" / "mine.yaml"
    path.write_text(SCENARIO)

    real, simulated = (run_trial(name, path, strategy, hash_every_step=True) for name in (engine, "simulated"))

    replicas = [real.hashes(f"worker-{rank}") for rank in range(3)]
    assert len(set(replicas[0].values())) == real.plan.steps >= 20, "every step changes the parameters"
    assert replicas == [simulated.hashes("worker-0")] * 3
