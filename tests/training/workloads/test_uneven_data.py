"""Training on uneven data: every worker owns a part of the samples."""

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from replay import replay

from services.learning.partitions.assignment import assign_training_samples
from services.schema.arrays import HostArray

Simulate = Callable[..., Any]

RING = {"kind": "all_reduce"}
SIZES = {"kind": "sizes", "shares": [5, 3, 2]}  # of 80 samples: 40, 24, 16
DIGITS = {"dataset": {"kind": "digits"}, "model": {"kind": "linear"}, "batch": 128}
SERVERS = {
    "bsp": {"kind": "parameter_server", "servers": 2},
    "asp": {"kind": "parameter_server", "synchrony": {"kind": "asp"}},
    "backup": {"kind": "parameter_server", "synchrony": {"kind": "backup", "backups": 1}},
    "easgd": {"kind": "easgd", "period": 3, "synchrony": {"kind": "asp"}},
    "switch": {"kind": "sync_switch", "fraction": 0.5},
}


def train_on_unions_of_shares(plan: Any) -> HostArray:
    """Return the parameters of one worker that trains on all shares of every step together."""
    data = plan.dataset.load(plan.dtype)
    parts = assign_training_samples(plan.partition, plan.dataset, plan.workers)
    params = plan.model.init_parameters(data.task, plan.seed, plan.dtype)
    state, weights = plan.optimiser.init_state(params), (1,) * plan.workers
    for step in range(plan.steps):
        batch = np.concatenate(
            [plan.data_order.select_sample_indices(step, rank, weights, part) for rank, part in enumerate(parts)]
        )
        _, gradient = plan.model.loss_and_grad(data.task, params, data.train_x[batch], data.train_y[batch])
        params, state = plan.optimiser.update_params(params, gradient, state)
    return params


@pytest.mark.parametrize("strategy", [RING, SERVERS["bsp"], {"kind": "local_sgd", "period": 1}], ids=str)
@pytest.mark.parametrize("batch", [12, 13])
def test_synchronous_training_equals_one_worker_on_the_same_batches(
    simulate: Simulate, strategy: dict[str, Any], batch: int
) -> None:
    """Shares of different sizes count by their samples."""
    work = {"batch": batch, "precision": "fp64", "optimiser": {"kind": "sgd", "rate": 0.05}}

    trial = simulate(strategy, 3, partition=SIZES, **work)

    np.testing.assert_allclose(trial.params, train_on_unions_of_shares(trial.plan), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("partition", [SIZES, {"kind": "sizes", "shares": [100, 1, 1]}], ids=str)
def test_every_worker_processes_its_part_once_per_epoch(simulate: Simulate, partition: dict[str, Any]) -> None:
    """The log counts the samples of each worker; the plan has announced them."""
    trial = simulate(RING, 3, batch=13, epochs=2, partition=partition)

    for rank in range(3):
        by_epoch: Counter[int] = Counter()
        for row in trial.steps(rank):
            by_epoch[row["epoch"]] += row["samples"]
        assert by_epoch == {1: trial.plan.part_sizes[rank], 2: trial.plan.part_sizes[rank]}


@pytest.mark.parametrize("strategy", SERVERS.values(), ids=SERVERS)
def test_servers_with_uneven_data_are_replayed_bitwise(simulate: Simulate, strategy: dict[str, Any]) -> None:
    """The samples of a push are those of the plan, also of the first push and after a switch."""
    trial = simulate(strategy, 3, batch=13, partition=SIZES, cluster={"worker": {"throughput": "900/s"}})

    params = replay(trial.plan, trial.arrivals, trial.progress)

    assert hashlib.sha256(params.tobytes()).hexdigest() == trial.value("coordinator", "params_sha256")


@pytest.mark.parametrize("partition", [{"kind": "iid"}, SIZES], ids=lambda partition: partition["kind"])
def test_the_order_by_blocks_trains_every_sample_once_per_epoch(simulate: Simulate, partition: dict[str, Any]) -> None:
    """With a partition or without one."""
    blocks = {"kind": "shuffled_blocks", "block": 9}

    trial = simulate(RING, 3, batch=13, epochs=2, order=blocks, partition=partition)

    assert sum(row["samples"] for rank in range(3) for row in trial.steps(rank)) == 160


def test_the_order_by_blocks_gives_another_model(simulate: Simulate) -> None:
    """The key has an effect."""
    shuffled, by_blocks = (simulate(RING, 3, order={"kind": kind}).params for kind in ("shuffled", "shuffled_blocks"))

    assert shuffled.tobytes() != by_blocks.tobytes()


def test_the_slowest_part_determines_the_predicted_step(simulate: Simulate) -> None:
    """Half of the batch is one worker's share, and all others wait for it."""
    work = {"batch": 20, "cluster": {"worker": {"throughput": "100/s"}}}

    even, uneven = simulate(RING, 3, **work), simulate(RING, 3, partition=SIZES, **work)

    assert even.plan.predicted.compute_s == pytest.approx(0.07)
    assert uneven.plan.predicted.compute_s == pytest.approx(0.10)
    last_step = uneven.steps(0)[-1]
    assert last_step["compute_s"] == pytest.approx(0.10, abs=1e-3)


def test_the_plan_counts_the_classes_of_each_worker(simulate: Simulate) -> None:
    """The report shows them."""
    trial = simulate(RING, 4, partition={"kind": "dirichlet", "alpha": 0.1}, epochs=1, **DIGITS)

    counts = np.array(trial.plan.class_counts)
    assert counts.sum(axis=1).tolist() == list(trial.plan.part_sizes)
    assert counts.sum() == trial.plan.train_samples


def final_loss(simulate: Simulate, partition: dict[str, Any], period: int, seed: int) -> float:
    """Return the validation loss of local SGD on four workers after four epochs."""
    work = DIGITS | {"model": {"kind": "mlp", "hidden": [32]}, "optimiser": {"kind": "sgd", "rate": 0.1}}
    strategy = {"kind": "local_sgd", "period": period}
    trial = simulate(strategy, 4, seed=seed, epochs=4, partition=partition, **work)
    loss: float = trial.events("coordinator", "eval_metrics")[-1]["value"]["loss"]
    return loss


@pytest.mark.parametrize("skewed", [{"kind": "dirichlet", "alpha": 0.1}, {"kind": "shards", "per_worker": 2}], ids=str)
def test_uneven_classes_slow_down_local_sgd_only_if_workers_exchange_seldom(
    simulate: Simulate, skewed: dict[str, Any]
) -> None:
    """The effect that McMahan et al. and Hsu et al. describe.

    With an exchange per step, the mean of the workers' gradients is that of the whole batch. With one per epoch, every
    worker learns its own classes. The bounds hold for each of the seeds 1 to 6; four of them are tested.
    """
    for seed in range(1, 5):
        partition = skewed | {"seed": seed}
        every_step, once_per_epoch = (
            final_loss(simulate, partition, period, seed) - final_loss(simulate, {"kind": "iid"}, period, seed)
            for period in (1, 12)
        )

        assert abs(every_step) < 0.02
        assert once_per_epoch > 0.05
