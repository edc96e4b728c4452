"""Laws of synchronous training: n workers are one worker, whatever carries their gradients."""

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
LINKED = {"worker": {"uplink": "100mbit", "downlink": "100mbit"}}  # `auto` has to have something to weigh
TOLERANCE = {"fp32": 1e-4, "fp64": 1e-6}  # relative, after twenty steps

every_synchronous = pytest.mark.parametrize("strategy", SYNCHRONOUS.values(), ids=SYNCHRONOUS)

# The training set has 80 samples: 12 go into it six times and leave 8; 13 leave 2, so some ranks have none.
BATCHES = pytest.mark.parametrize("batch", [12, 13])


@every_synchronous
@BATCHES
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_n_workers_train_as_one_worker_with_the_whole_batch(
    rehearse: Callable[..., Any], strategy: dict[str, Any], batch: int, workers: int, precision: str
) -> None:
    """A gradient is a mean over samples: whoever computed which part of it must not be seen in the model."""
    work = {"batch": batch, "epochs": 4, "precision": precision}

    alone, together = rehearse(NONE, 1, **work), rehearse(strategy, workers, **work, cluster=LINKED)

    assert alone.plan.steps >= 20
    np.testing.assert_allclose(
        together.params, alone.params, rtol=TOLERANCE[precision], atol=TOLERANCE[precision] * 1e-2
    )


@every_synchronous
@pytest.mark.parametrize(
    "optimiser", [{"kind": "sgd", "rate": 0.1, "weight_decay": 0.01}, {"kind": "adam", "rate": 0.01}]
)
def test_any_optimiser_trains_n_workers_as_one(
    rehearse: Callable[..., Any], strategy: dict[str, Any], optimiser: dict[str, Any]
) -> None:
    """State lives on every worker or in ranges on servers; where it lives must not be seen either."""
    work = {"optimiser": optimiser, "precision": "fp64", "cluster": LINKED}

    alone, together = (rehearse(kind, workers, **work) for kind, workers in ((NONE, 1), (strategy, 3)))

    np.testing.assert_allclose(together.params, alone.params, rtol=1e-6, atol=1e-9)


def test_n_workers_classify_as_one_worker(rehearse: Callable[..., Any]) -> None:
    """The same law for labels and cross entropy."""
    work = {"dataset": {"kind": "digits"}, "model": {"kind": "linear"}, "batch": 150, "epochs": 2}

    alone, together = rehearse(NONE, 1, **work), rehearse(RING, 4, **work)

    np.testing.assert_allclose(together.params, alone.params, rtol=1e-4, atol=1e-5)


def test_the_batch_decides_the_model_so_the_law_above_can_fail(rehearse: Callable[..., Any]) -> None:
    """With another batch the same code gives another model: equality is not an accident of a flat loss."""
    one, other = rehearse(RING, 3, batch=12), rehearse(RING, 3, batch=16)

    assert not np.allclose(one.params, other.params, rtol=1e-2)


@every_synchronous
@pytest.mark.parametrize("workers", [2, 3, 5])
def test_replicas_hold_the_same_bits_after_every_step(
    rehearse: Callable[..., Any], strategy: dict[str, Any], workers: int
) -> None:
    """Replicas that differ in one bit drift apart unseen."""
    done = rehearse(strategy, workers, batch=13, hash_every_step=True, cluster=LINKED)

    hashes = [
        {event["metadata"]["step"]: event["value"] for event in done.events(f"worker-{rank}", "node_hash")}
        for rank in range(workers)
    ]
    assert list(hashes[0]) == list(range(1, done.plan.steps + 1))
    assert len(set(hashes[0].values())) == done.plan.steps, "every step changes the parameters"
    assert all(others == hashes[0] for others in hashes)


@every_synchronous
def test_fewer_parameters_than_workers_still_train(rehearse: Callable[..., Any], strategy: dict[str, Any]) -> None:
    """Chunks of a ring may be empty, and a server may hold one number; nobody may wait for what has no entries."""
    few = {"kind": "synthetic_regression", "samples": 20, "features": 1, "outputs": 1}
    work = {"dataset": few, "model": {"kind": "linear"}, "batch": 8, "cluster": LINKED}
    many = strategy | {"servers": 2} if "servers" in strategy else strategy

    alone, together = (rehearse(kind, n, **work) for kind, n in ((NONE, 1), (many, 5)))

    np.testing.assert_allclose(together.params, alone.params, rtol=1e-4)


@every_synchronous
def test_the_same_scenario_and_seed_write_the_same_logs(rehearse: Callable[..., Any], strategy: dict[str, Any]) -> None:
    """A simulated run is a computation: repeating it repeats every line, so that a surprise can be looked at again."""
    once, again, other = (rehearse(strategy, 3, seed=seed, cluster=LINKED) for seed in (7, 7, 8))

    assert without_cost(once) == without_cost(again)
    assert digest(once) == digest(again)
    assert digest(once) != digest(other)


@every_synchronous
def test_all_workers_stop_after_the_same_step_at_the_target(
    rehearse: Callable[..., Any], strategy: dict[str, Any]
) -> None:
    """A worker that went on alone would wait for ever for the others' gradients."""
    done = rehearse(strategy, 3, epochs=30, target={"metric": "r2", "at_least": 0.5}, cluster=LINKED)

    (stop,) = done.events("coordinator", "run_stop")
    lengths = {len(done.steps(rank)) for rank in range(3)}
    assert (
        stop["metadata"] | {"status": "success", "target_reached": True, "reason": "target reached"} == stop["metadata"]
    )
    assert lengths == {stop["metadata"]["step"]}
    assert 0 < stop["metadata"]["step"] < done.plan.steps
    assert stop["metadata"]["step"] % done.plan.steps_per_epoch == 0


@every_synchronous
def test_a_budget_is_used_up_although_the_target_is_reached(
    rehearse: Callable[..., Any], strategy: dict[str, Any]
) -> None:
    """Whoever compares curves of equal length says `stop: budget`."""
    done = rehearse(strategy, 3, epochs=30, target={"metric": "r2", "at_least": 0.5}, stop="budget", cluster=LINKED)

    (stop,) = done.events("coordinator", "run_stop")
    assert (stop["metadata"]["status"], stop["metadata"]["step"]) == ("success", done.plan.steps)
    assert len(done.events("coordinator", "eval_accuracy")) == 30
    assert {len(done.steps(rank)) for rank in range(3)} == {done.plan.steps}


def test_a_missed_target_is_no_success(rehearse: Callable[..., Any]) -> None:
    """MLPerf's rule: a run that does not reach its quality does not count."""
    done = rehearse(RING, 2, target={"metric": "r2", "at_least": 1.0})

    (stop,) = done.events("coordinator", "run_stop")
    assert (stop["metadata"]["status"], stop["metadata"]["target_reached"]) == ("aborted", False)


def digest(done: Any) -> str:
    """Of the final parameters."""
    return str(done.value("coordinator", "params_sha256"))


def without_cost(done: Any) -> dict[str, list[str]]:
    """All lines but those that tell how much of the host a node used."""
    return {node: [line for line in lines if "cpu_seconds" not in line] for node, lines in done.lines.items()}
