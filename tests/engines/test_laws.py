"""The laws of training on engines that run nodes as processes or containers: they agree with the simulation.

`tests/training` proves the laws in virtual time, where a trial takes milliseconds. Here equal bits after every step
show that the laws also hold with real clocks, sockets and links.
"""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

RunTrial: TypeAlias = Callable[..., Any]

# 80 samples for training are six batches of 13 and a rest of 2, so one of three workers gets no sample of the rest.
LAWS_SCENARIO = """
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
SYNCHRONOUS = ["ring", "one", "two", "three"]
IN_CONTAINERS = [pytest.mark.docker, pytest.mark.slow]
TOLERANCE = {"fp32": 1e-4, "fp64": 1e-6}  # relative, after twenty steps


@pytest.fixture
def laws_scenario(tmp_path: Path) -> Path:
    """Return the path of the scenario."""
    path = tmp_path / "laws.yaml"
    path.write_text(LAWS_SCENARIO)
    return path


@pytest.mark.side_by_side
@pytest.mark.slow_where(strategy=["one", "two"])
@pytest.mark.parametrize(
    ("engine", "strategy"),
    [
        *product(["local"], SYNCHRONOUS),
        *(pytest.param(*case, marks=IN_CONTAINERS) for case in [("docker", "ring"), ("docker", "three")]),
    ],
    indirect=["engine"],
)
def test_replicas_equal_the_simulated_bits_after_every_step(
    run_trial: RunTrial, laws_scenario: Path, engine: str, strategy: str
) -> None:
    """Every replica is compared after every step, so every law of the simulated parameters holds for these as well."""
    real, simulated = (run_trial(name, laws_scenario, strategy, hash_every_step=True) for name in (engine, "simulated"))

    expected = simulated.hashes("worker-0")
    assert list(expected) == list(range(1, real.plan.steps + 1))
    assert len(set(expected.values())) == real.plan.steps >= 20, "every step changes the parameters"
    assert [real.hashes(f"worker-{rank}") for rank in range(3)] == [expected] * 3
    assert real.params_sha256 == simulated.params_sha256
    assert_planned_bytes_were_sent(real)


@pytest.mark.side_by_side
@pytest.mark.slow_where(precision=["fp64"])
@pytest.mark.parametrize(
    ("engine", "strategy", "precision"),
    [*product(["local"], ["ring", "three"], TOLERANCE), pytest.param("docker", "three", "fp32", marks=IN_CONTAINERS)],
    indirect=["engine"],
)
def test_three_workers_get_the_result_of_one_worker_with_the_whole_batch(
    run_trial: RunTrial, laws_scenario: Path, engine: str, strategy: str, precision: str
) -> None:
    """The logs show the same loss, and the same quality on held-out samples, after each epoch."""
    three_workers = run_trial(engine, laws_scenario, strategy, workload__precision=precision)
    one_worker = run_trial("simulated", laws_scenario, "none", workload__precision=precision)

    actual, expected = (
        [[*event["value"].values()] for event in trial.events("coordinator", "eval_metrics")]
        for trial in (three_workers, one_worker)
    )
    assert len(actual) == 3
    np.testing.assert_allclose(actual, expected, rtol=TOLERANCE[precision])


@pytest.mark.side_by_side
@pytest.mark.slow_where(engine=["docker"])
def test_evaluations_follow_the_same_samples_on_every_engine(
    run_trial: RunTrial, laws_scenario: Path, engine: str
) -> None:
    """Steps of 13 samples, in each epoch one of 2: every 30 samples are complete after 39, 65, 93, … samples."""
    real, simulated = (
        run_trial(name, laws_scenario, "ring", workload__evaluate_every="30") for name in (engine, "simulated")
    )

    actual, expected = (
        [(event["metadata"]["samples_count"], event["value"]) for event in trial.events("coordinator", "eval_metrics")]
        for trial in (real, simulated)
    )
    assert actual == expected
    assert [samples for samples, _ in actual] == [39, 65, 93, 132, 158, 186, 212, 240]


@pytest.mark.slow_where(engine=["docker"])
def test_the_mean_staleness_of_asynchronous_gradients_is_the_number_of_peers(
    run_trial: RunTrial, laws_scenario: Path, engine: str
) -> None:
    """With n workers it is n-1: every update counts once in the staleness of every other worker's gradient."""
    trial = run_trial(engine, laws_scenario, "asp", workload__batch="40", workload__epochs="150")

    updates = trial.rows("server-0", "shard_updates")
    first_final_version = min(row["version"] for row in updates if row["push_step"] == trial.plan.steps - 1)
    staleness = [row["staleness"] for row in updates if row["version"] < first_final_version]  # while all workers train
    assert len(staleness) >= 800
    assert np.mean(staleness) == pytest.approx(2, rel=0.01)
    assert_planned_bytes_were_sent(trial)


@pytest.mark.side_by_side
@pytest.mark.slow_where(engine=["docker"])
def test_one_asynchronous_worker_equals_serial_training(run_trial: RunTrial, laws_scenario: Path, engine: str) -> None:
    """The parameters are equal to the last bit."""
    asynchronous, serial = (
        run_trial(engine, laws_scenario, strategy, cluster__workers="1") for strategy in ("asp", "none")
    )

    assert asynchronous.params_sha256 == serial.params_sha256


def assert_planned_bytes_were_sent(trial: Any) -> None:
    """Check that the payload is exactly as planned, and that framing is counted separately."""
    steps = {node.name: len(trial.rows(node.name, "node_steps")) for node in trial.plan.node_plans_of_role("worker")}
    for node, per_step in trial.plan.bytes_per_step.items():
        stop = trial.value(node, "node_stop")
        assert stop["payload_bytes_sent"] * 3 == per_step * (3 * steps[node] if node in steps else sum(steps.values()))
        assert stop["framing_bytes_sent"] > 0
