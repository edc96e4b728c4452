"""The laws of training, on engines whose nodes are processes or containers: what is simulated also happens.

`tests/training` proves the laws in virtual time, where a trial takes milliseconds. Here the same bits after every step
carry them over to real clocks, sockets and links.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

RunTrial: TypeAlias = Callable[..., Any]

# 80 samples for training: 13 go into them six times and leave 2, so one of three workers then has none.
LAWS = """
name: laws
workload:
  dataset: {kind: synthetic_regression, samples: 100, features: 4, outputs: 2, hidden: 8}
  model: {kind: mlp, hidden: [5], activation: tanh}
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
  one: {kind: parameter_server, servers: 1}
  two: {kind: parameter_server, servers: 2}
  three: {kind: parameter_server, servers: 3}
  asp: {kind: parameter_server, synchrony: {kind: asp}}
"""
LOCKSTEP = ["ring", "one", "two", "three"]
TOLERANCE = {"fp32": 1e-4, "fp64": 1e-6}  # relative, after twenty steps


@pytest.fixture
def laws(tmp_path: Path) -> Path:
    """The scenario."""
    path = tmp_path / "laws.yaml"
    path.write_text(LAWS)
    return path


@pytest.mark.slow_where(engine=["docker"])
@pytest.mark.slow_where(strategy=["one", "two"])
@pytest.mark.parametrize("strategy", LOCKSTEP)
@pytest.mark.exact
def test_replicas_hold_the_simulated_bits_after_every_step(
    run_trial: RunTrial, laws: Path, engine: str, strategy: str
) -> None:
    """Every replica, every step: so whatever law holds of the simulation's parameters holds of these."""
    real, simulated = (run_trial(name, laws, strategy, hash_every_step=True) for name in (engine, "simulated"))

    expected = simulated.hashes("worker-0")
    assert list(expected) == list(range(1, real.plan.steps + 1))
    assert len(set(expected.values())) == real.plan.steps >= 20, "every step changes the parameters"
    assert [real.hashes(f"worker-{rank}") for rank in range(3)] == [expected] * 3
    assert real.params_sha256 == simulated.params_sha256
    assert_bytes_are_the_routes(real)


@pytest.mark.slow_where(engine=["docker"])
@pytest.mark.slow_where(precision=["fp64"])
@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("strategy", ["ring", "three"])
@pytest.mark.exact
def test_three_workers_find_what_one_finds_with_the_whole_batch(
    run_trial: RunTrial, laws: Path, engine: str, strategy: str, precision: str
) -> None:
    """As far as logs tell: the same loss and the same quality on held-out samples, epoch after epoch."""
    together = run_trial(engine, laws, strategy, workload__precision=precision)
    alone = run_trial("simulated", laws, "none", workload__precision=precision)

    found, expected = (
        [[*event["value"].values()] for event in trial.events("coordinator", "eval_metrics")]
        for trial in (together, alone)
    )
    assert len(found) == 3
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE[precision])


@pytest.mark.slow_where(engine=["docker"])
@pytest.mark.exact
def test_asynchronous_gradients_are_as_stale_as_there_are_others(run_trial: RunTrial, laws: Path, engine: str) -> None:
    """Mean staleness n-1: every update counts once in the staleness of every other worker's gradient."""
    trial = run_trial(engine, laws, "asp", workload__batch="40", workload__epochs="150")

    updates = trial.rows("server-0", "shard_updates")
    end = min(row["version"] for row in updates if row["push_step"] == trial.plan.steps - 1)
    stale = [row["staleness"] for row in updates if row["version"] < end]  # while all work
    assert len(stale) >= 800
    assert np.mean(stale) == pytest.approx(2, rel=0.01)
    assert_bytes_are_the_routes(trial)


@pytest.mark.slow_where(engine=["docker"])
@pytest.mark.exact
def test_one_asynchronous_worker_is_serial_training(run_trial: RunTrial, laws: Path, engine: str) -> None:
    """To the last bit."""
    pushed, alone = (run_trial(engine, laws, strategy, cluster__workers="1") for strategy in ("asp", "none"))

    assert pushed.params_sha256 == alone.params_sha256


def assert_bytes_are_the_routes(trial: Any) -> None:
    """Payload exactly as counted before the run; framing is told apart."""
    steps = {node.name: len(trial.rows(node.name, "node_steps")) for node in trial.plan.node_plans_of_role("worker")}
    for node, per_step in trial.plan.bytes_per_step.items():
        stop = trial.value(node, "node_stop")
        assert stop["payload_bytes_sent"] * 3 == per_step * (3 * steps[node] if node in steps else sum(steps.values()))
        assert stop["framing_bytes_sent"] > 0
