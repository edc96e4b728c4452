"""Properties of load balancing in whole trials: the update of one worker, each sample once, and the gain."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Simulate = Callable[..., Any]

SAMPLES = 80  # of an epoch, in 7 steps of 12 or 13
RING, SERVER = {"kind": "all_reduce"}, {"kind": "parameter_server", "servers": 2}
PROPORTIONAL, DYNAMIC = {"kind": "proportional"}, {"kind": "dynamic", "period": 2}
HALF_SPEED = {"groups": [{"name": "slow", "ranks": [2], "speed": 0.5}]}

every_balance = pytest.mark.parametrize("balance", [PROPORTIONAL, DYNAMIC], ids=lambda balance: balance["kind"])
every_batch = pytest.mark.parametrize("batch", [12, 13])
every_strategy = pytest.mark.parametrize("strategy", [RING, SERVER], ids=lambda strategy: strategy["kind"])


@every_balance
@every_batch
@every_strategy
def test_unequal_shares_equal_one_worker_with_the_whole_batch(
    simulate: Simulate, strategy: dict[str, Any], batch: int, balance: dict[str, Any]
) -> None:
    """Gradients are weighted by samples; their plain mean would be another gradient."""
    work = {"batch": batch, "precision": "fp64"}

    trial = simulate(strategy | {"balance": balance}, 3, cluster=HALF_SPEED, **work)
    alone = simulate({"kind": "none"}, 1, **work)

    assert {row["samples"] for row in trial.steps(0)} != {row["samples"] for row in trial.steps(2)}
    np.testing.assert_allclose(trial.params, alone.params, rtol=1e-6, atol=1e-9)


@every_strategy
def test_plain_mean_of_unequal_shares_would_be_another_gradient(simulate: Simulate, strategy: dict[str, Any]) -> None:
    """The test above must be able to fail: the gradients of two unequal shares differ clearly."""
    trial = simulate(strategy | {"balance": PROPORTIONAL}, 3, cluster=HALF_SPEED, precision="fp64")
    plan, data = trial.plan, trial.plan.dataset.load("float64")
    params = plan.model.init_parameters(data.task, plan.seed, plan.dtype)
    parts = [plan.data_order.select_sample_indices(0, rank, plan.initial_shares) for rank in range(3)]
    gradients = [
        plan.model.loss_and_grad(data.task, params, data.train_x[part], data.train_y[part])[1] for part in parts
    ]
    whole = plan.data_order.batch_sample_indices(0)
    _, gradient = plan.model.loss_and_grad(data.task, params, data.train_x[whole], data.train_y[whole])

    np.testing.assert_allclose(np.average(gradients, axis=0, weights=[len(part) for part in parts]), gradient, 1e-9)
    assert np.abs(np.mean(gradients, axis=0) - gradient).max() > 1e-3 * np.abs(gradient).max()


@every_balance
@every_batch
def test_local_sgd_with_a_period_of_one_equals_synchronous_training(
    simulate: Simulate, batch: int, balance: dict[str, Any]
) -> None:
    """Parameters are weighted by the samples of each worker since the last exchange, also while shares change."""
    work = {"batch": batch, "precision": "fp64", "optimiser": {"kind": "sgd", "rate": 0.05}}

    trial = simulate({"kind": "local_sgd", "period": 1, "balance": balance}, 3, cluster=HALF_SPEED, **work)
    alone = simulate({"kind": "none"}, 1, **work)

    np.testing.assert_allclose(trial.params, alone.params, rtol=1e-6, atol=1e-9)


@every_balance
@every_strategy
def test_uniform_has_the_bits_of_a_strategy_without_balance(
    simulate: Simulate, strategy: dict[str, Any], balance: dict[str, Any]
) -> None:
    """The default must not change any earlier result; equal speeds give equal shares under every rule."""
    plain = simulate(strategy, 3)

    assert simulate(strategy | {"balance": {"kind": "uniform"}}, 3).params.tobytes() == plain.params.tobytes()
    assert simulate(strategy | {"balance": balance}, 3).params.tobytes() == plain.params.tobytes()


@every_balance
@every_batch
def test_samples_of_every_step_and_epoch_add_up(simulate: Simulate, batch: int, balance: dict[str, Any]) -> None:
    """Shares change in the middle of an epoch, and its last batch is smaller."""
    trial = simulate(RING | {"balance": balance}, 3, cluster=HALF_SPEED, batch=batch)

    totals = Counter[int]()
    for rank in range(3):
        totals.update({row["step"]: row["samples"] for row in trial.steps(rank)})
    assert totals == {step: trial.plan.data_order.batch_size(step) for step in range(trial.plan.steps)}
    assert sum(totals.values()) == 3 * SAMPLES


def test_replicas_agree_after_every_step_while_shares_change(simulate: Simulate) -> None:
    """Every rank decides by itself; a different decision would skip samples or use them twice."""
    variation = {"kind": "lognormal", "sigma": 0.5}
    cluster = {"worker": {"throughput": "1000/s", "variation": variation}}
    balance = {"kind": "dynamic", "period": 1, "dead_band": 0, "smoothing": 0}

    trial = simulate(RING | {"balance": balance}, 4, cluster=cluster, batch=40, hash_every_step=True)

    events = [event for rank in range(4) for event in trial.events(f"worker-{rank}", "node_hash")]
    digests = {(event["metadata"]["step"], event["value"]) for event in events}
    assert len(trial.events("worker-0", "batch_shares")) >= 3
    assert len(digests) == len({step for step, _ in digests})


def test_samples_of_a_worker_follow_the_planned_shares(simulate: Simulate) -> None:
    """The plan predicts the shares of every step from the declared speeds and the drawn variation."""
    cluster = HALF_SPEED | {"worker": {"throughput": "1000/s", "variation": {"kind": "lognormal", "sigma": 0.3}}}
    trial = simulate(RING | {"balance": DYNAMIC}, 3, cluster=cluster, batch=40, epochs=8)

    seconds = [[row["compute_s"] for row in trial.steps(rank)] for rank in range(3)]
    slowest = [max(times) for times in zip(*seconds, strict=True)]
    assert trial.plan.predicted.compute_s == pytest.approx(np.mean(slowest), rel=0.01)


def unequal_nodes(simulate: Simulate, strategy: dict[str, Any], **keys: Any) -> Any:
    """Return a trial of eight workers, one half as fast, with batches of 512."""
    dataset = {"kind": "synthetic_regression", "samples": 10240, "features": 4, "outputs": 2}
    worker = {"throughput": "1000/s", "uplink": "1gbit", "downlink": "1gbit"}
    cluster = {
        "worker": worker,
        "server": {"uplink": "1gbit", "downlink": "1gbit"},
        "groups": [{"name": "slow", "ranks": [7], "speed": 0.5}],
    }
    return simulate(strategy, 8, cluster=cluster, dataset=dataset, batch=512, epochs=3, **keys)


def step_times_s(trial: Any) -> list[float]:
    """Return the seconds of each step until its slowest worker has finished it."""
    return [
        max(times) for times in zip(*([row["step_s"] for row in trial.steps(rank)] for rank in range(8)), strict=True)
    ]


@pytest.mark.parametrize(
    "strategy",
    [RING, SERVER, {"kind": "local_sgd", "period": 4}],
    ids=lambda strategy: strategy["kind"],
)
def test_dynamic_shares_reach_95_percent_of_the_bound_within_three_adjustments(
    simulate: Simulate, strategy: dict[str, Any]
) -> None:
    """The gain that LB-BSP promises: 64 / 34.1 = 1.88 for eight workers, one of them half as fast."""
    uniform = unequal_nodes(simulate, strategy)
    dynamic = unequal_nodes(simulate, strategy | {"balance": {"kind": "dynamic", "period": 4}})

    changes = [event["metadata"]["step"] for event in dynamic.events("worker-0", "batch_shares")]
    balanced = step_times_s(dynamic)[max(changes) :]
    compute_s = [[row["compute_s"] for row in dynamic.steps(rank)][max(changes) :] for rank in range(8)]
    spreads = [1 - min(times) / max(times) for times in zip(*compute_s, strict=True)]
    assert dynamic.plan.balance.speedup_bound == pytest.approx(64 / 34.1333, rel=1e-4)
    assert 1 <= len(changes) <= 3
    assert np.mean(step_times_s(uniform)) / np.mean(balanced) >= 0.95 * dynamic.plan.balance.speedup_bound
    assert max(spreads) < 0.1


def test_planned_bytes_and_messages_include_the_exchange_of_speeds(simulate: Simulate) -> None:
    """Every fourth step has 8(n-1) bytes and lg n messages more than the others."""
    plain = unequal_nodes(simulate, RING)
    trial = unequal_nodes(simulate, RING | {"balance": {"kind": "dynamic", "period": 4}})

    extra = [
        (row["bytes_sent"] - other["bytes_sent"], row["messages_sent"] - other["messages_sent"])
        for row, other in zip(trial.steps(0), plain.steps(0), strict=True)
    ]
    assert extra == [(56, 3) if step % 4 == 3 else (0, 0) for step in range(48)]
    assert trial.plan.bytes_per_step["worker-0"] - plain.plan.bytes_per_step["worker-0"] == 14
    assert trial.plan.balance.messages_per_resize == 3


@every_strategy
def test_step_times_are_those_of_the_plan(simulate: Simulate, strategy: dict[str, Any]) -> None:
    """The prediction has the steps before the first change, the balanced steps and the exchange of speeds."""
    for balance in (PROPORTIONAL, {"kind": "dynamic", "period": 4}):
        trial = unequal_nodes(simulate, strategy | {"balance": balance})

        assert trial.plan.predicted.step_s == pytest.approx(np.mean(step_times_s(trial)), rel=0.02)


def test_max_share_limits_the_samples_of_a_worker(simulate: Simulate) -> None:
    """A worker whose memory is full gets no more samples, however fast it is."""
    for balance in ({"kind": "proportional", "max_share": 66}, {"kind": "dynamic", "period": 4, "max_share": 66}):
        trial = unequal_nodes(simulate, RING | {"balance": balance})

        assert max(row["samples"] for rank in range(8) for row in trial.steps(rank)) == 66
        assert min(row["samples"] for row in trial.steps(7)) == 512 - 7 * 66


def test_sixty_four_workers_send_the_planned_bytes(simulate: Simulate) -> None:
    """Six rounds gather the speeds of 64 workers, in each step here, and each worker sends 63 numbers."""
    dataset = {"kind": "synthetic_regression", "samples": 4000, "features": 4, "outputs": 2}
    worker = {"throughput": "1000/s", "variation": {"kind": "lognormal", "sigma": 0.5}}
    balance = {"kind": "dynamic", "period": 1}
    trial = simulate(
        SERVER | {"balance": balance}, 64, cluster={"worker": worker}, dataset=dataset, batch=640, epochs=1
    )

    assert len(trial.steps(0)) == trial.plan.steps == 5
    assert len(trial.events("worker-0", "batch_shares")) >= 3
    for rank in range(64):
        sent = trial.value(f"worker-{rank}", "node_stop")["payload_bytes_sent"]
        assert sent == 5 * trial.plan.bytes_per_step[f"worker-{rank}"]
