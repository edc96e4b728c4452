"""Properties of synchronous training: n workers equal one worker, for every strategy that exchanges gradients."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

NONE = {"kind": "none"}
RING = {"kind": "all_reduce"}
SYNCHRONOUS = {
    "ring": RING,
    "butterfly": RING | {"collective": {"kind": "halving_doubling"}},
    "racks": RING | {"collective": {"kind": "hierarchical", "size": 2}},
    "array by array": RING | {"collective": {"kind": "reduce_to_one", "senders": "serial", "fused": False}},
    "auto": RING | {"collective": {"kind": "auto"}},
    "one server": {"kind": "parameter_server", "servers": 1},
    "two servers": {"kind": "parameter_server", "servers": 2},
    "three servers": {"kind": "parameter_server", "servers": 3},
}
LINKED = {"worker": {"uplink": "100mbit", "downlink": "100mbit"}}  # `auto` needs link rates to choose a collective
TOLERANCE = {"fp32": 1e-4, "fp64": 1e-6}  # relative, after twenty steps

every_synchronous = pytest.mark.parametrize("strategy", SYNCHRONOUS.values(), ids=SYNCHRONOUS)

# The training set has 80 samples: six batches of 12 leave 8 samples; six of 13 leave 2, so some ranks have none.
BATCHES = pytest.mark.parametrize("batch", [12, 13])


@every_synchronous
@BATCHES
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_n_workers_train_as_one_worker_with_the_whole_batch(
    simulate: Callable[..., Any], strategy: dict[str, Any], batch: int, workers: int, precision: str
) -> None:
    """A gradient is a mean over samples: the division of the batch among workers must not change the model."""
    work = {"batch": batch, "epochs": 4, "precision": precision}

    serial, parallel = simulate(NONE, 1, **work), simulate(strategy, workers, **work, cluster=LINKED)

    assert serial.plan.steps >= 20
    np.testing.assert_allclose(
        parallel.params, serial.params, rtol=TOLERANCE[precision], atol=TOLERANCE[precision] * 1e-2
    )


@every_synchronous
@pytest.mark.parametrize(
    "optimiser", [{"kind": "sgd", "rate": 0.1, "weight_decay": 0.01}, {"kind": "adam", "rate": 0.01}]
)
def test_n_workers_train_as_one_worker_with_any_optimiser(
    simulate: Callable[..., Any], strategy: dict[str, Any], optimiser: dict[str, Any]
) -> None:
    """Every worker has the optimiser state, or servers have ranges of it; its location must not change the model."""
    work = {"optimiser": optimiser, "precision": "fp64", "cluster": LINKED}

    serial, parallel = (simulate(kind, workers, **work) for kind, workers in ((NONE, 1), (strategy, 3)))

    np.testing.assert_allclose(parallel.params, serial.params, rtol=1e-6, atol=1e-9)


def test_n_workers_train_as_one_worker_on_a_classification(simulate: Callable[..., Any]) -> None:
    """The same property for labels and cross entropy."""
    work = {"dataset": {"kind": "digits"}, "model": {"kind": "linear"}, "batch": 150, "epochs": 2}

    serial, parallel = simulate(NONE, 1, **work), simulate(RING, 4, **work)

    np.testing.assert_allclose(parallel.params, serial.params, rtol=1e-4, atol=1e-5)


def test_another_batch_size_gives_another_model(simulate: Callable[..., Any]) -> None:
    """The tests above can fail: with another batch the same code gives another model."""
    batch_of_12, batch_of_16 = simulate(RING, 3, batch=12), simulate(RING, 3, batch=16)

    assert not np.allclose(batch_of_12.params, batch_of_16.params, rtol=1e-2)


@every_synchronous
@pytest.mark.parametrize("workers", [2, 3, 5])
def test_replicas_are_bitwise_equal_after_every_step(
    simulate: Callable[..., Any], strategy: dict[str, Any], workers: int
) -> None:
    """Replicas that differ in one bit would drift apart unnoticed."""
    trial = simulate(strategy, workers, batch=13, hash_every_step=True, cluster=LINKED)

    hashes = [
        {event["metadata"]["step"]: event["value"] for event in trial.events(f"worker-{rank}", "node_hash")}
        for rank in range(workers)
    ]
    assert list(hashes[0]) == list(range(1, trial.plan.steps + 1))
    assert len(set(hashes[0].values())) == trial.plan.steps, "every step changes the parameters"
    assert all(worker_hashes == hashes[0] for worker_hashes in hashes)


@every_synchronous
def test_model_with_fewer_parameters_than_workers_trains(
    simulate: Callable[..., Any], strategy: dict[str, Any]
) -> None:
    """Chunks of a ring may be empty, and a shard may have one entry; no worker may wait for an empty range."""
    tiny_dataset = {"kind": "synthetic_regression", "samples": 20, "features": 1, "outputs": 1}
    work = {"dataset": tiny_dataset, "model": {"kind": "linear"}, "batch": 8, "cluster": LINKED}
    with_servers = strategy | {"servers": 2} if "servers" in strategy else strategy

    serial, parallel = (simulate(kind, workers, **work) for kind, workers in ((NONE, 1), (with_servers, 5)))

    np.testing.assert_allclose(parallel.params, serial.params, rtol=1e-4)


@every_synchronous
def test_same_scenario_and_seed_write_the_same_logs(simulate: Callable[..., Any], strategy: dict[str, Any]) -> None:
    """A simulated run is deterministic: repeating it repeats every line, so any result can be examined again."""
    first, repeated, other_seed = (simulate(strategy, 3, seed=seed, cluster=LINKED) for seed in (7, 7, 8))

    assert lines_without_cpu_time(first) == lines_without_cpu_time(repeated)
    assert digest(first) == digest(repeated)
    assert digest(first) != digest(other_seed)


@every_synchronous
def test_all_workers_stop_after_the_same_step_at_the_target(
    simulate: Callable[..., Any], strategy: dict[str, Any]
) -> None:
    """A worker that continued alone would wait forever for the gradients of the others."""
    trial = simulate(strategy, 3, epochs=30, target={"metric": "r2", "at_least": 0.5}, cluster=LINKED)

    (stop,) = trial.events("coordinator", "run_stop")
    step_counts = {len(trial.steps(rank)) for rank in range(3)}
    assert (
        stop["metadata"] | {"status": "success", "target_reached": True, "reason": "target reached"} == stop["metadata"]
    )
    assert step_counts == {stop["metadata"]["step"]}
    assert 0 < stop["metadata"]["step"] < trial.plan.steps
    assert stop["metadata"]["step"] % trial.plan.steps_per_epoch == 0


@every_synchronous
def test_run_with_stop_budget_continues_after_the_target(
    simulate: Callable[..., Any], strategy: dict[str, Any]
) -> None:
    """`stop: budget` gives curves of equal length, which can be compared."""
    trial = simulate(strategy, 3, epochs=30, target={"metric": "r2", "at_least": 0.5}, stop="budget", cluster=LINKED)

    (stop,) = trial.events("coordinator", "run_stop")
    assert (stop["metadata"]["status"], stop["metadata"]["step"]) == ("success", trial.plan.steps)
    assert len(trial.events("coordinator", "eval_accuracy")) == 30
    assert {len(trial.steps(rank)) for rank in range(3)} == {trial.plan.steps}


def test_run_that_misses_the_target_is_aborted(simulate: Callable[..., Any]) -> None:
    """MLPerf's rule: a run that does not reach its quality does not count."""
    trial = simulate(RING, 2, target={"metric": "r2", "at_least": 1.0})

    (stop,) = trial.events("coordinator", "run_stop")
    assert (stop["metadata"]["status"], stop["metadata"]["target_reached"]) == ("aborted", False)


def digest(trial: Any) -> str:
    """Return the digest of the final parameters."""
    return str(trial.value("coordinator", "params_sha256"))


def lines_without_cpu_time(trial: Any) -> dict[str, list[str]]:
    """Return all log lines but those with the CPU time that a node used on the host."""
    return {node: [line for line in lines if "cpu_seconds" not in line] for node, lines in trial.lines.items()}
