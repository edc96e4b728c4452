"""Properties of local SGD: its limits equal serial and synchronous training, and an exchange computes the mean."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from services.cluster.links.fluid_link import to_goodput_bytes_per_s

Simulate = Callable[..., Any]

EPOCH = 7  # steps, of 12 or of 13 samples: 80 in all
RING = {"kind": "all_reduce"}
SGD = {"kind": "sgd", "rate": 0.05}
LINKS = {"worker": {"throughput": "1000/s", "uplink": "1mbit", "downlink": "1mbit"}}


def local_sgd(period: int, **keys: Any) -> dict[str, Any]:
    return {"kind": "local_sgd", "period": period, **keys}


@pytest.mark.parametrize("batch", [12, 13])
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_period_of_one_equals_synchronous_training(simulate: Simulate, workers: int, batch: int) -> None:
    """The mean after one local step each equals one step with the mean gradient, for any shares of the samples."""
    work = {"batch": batch, "optimiser": SGD, "precision": "fp64"}

    trial, synchronous = simulate(local_sgd(1), workers, **work), simulate(RING, workers, **work)

    np.testing.assert_allclose(trial.params, synchronous.params, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("period", [1, EPOCH])
@pytest.mark.parametrize("optimiser", [SGD, {"kind": "adam", "rate": 0.01}], ids=lambda optimiser: optimiser["kind"])
def test_one_worker_equals_serial_training_bitwise(simulate: Simulate, period: int, optimiser: dict[str, Any]) -> None:
    """One worker has no peers to exchange with."""
    trial = simulate(local_sgd(period), 1, optimiser=optimiser)

    assert trial.params.tobytes() == simulate({"kind": "none"}, 1, optimiser=optimiser).params.tobytes()


@pytest.mark.parametrize("collective", ["ring", "tree", "reduce_to_one"])
@pytest.mark.parametrize("batch", [12, 13])
def test_exchange_after_an_epoch_is_the_mean_weighted_by_samples(
    simulate: Simulate, collective: str, batch: int
) -> None:
    """Computed here again without nodes: each rank trains on its shares and is weighted by its number of samples."""
    strategy = local_sgd(EPOCH, collective={"kind": collective})
    trial = simulate(strategy, 3, batch=batch, epochs=1, precision="fp64")
    plan, data = trial.plan, trial.plan.dataset.load("float64")
    initial = plan.model.init_parameters(data.task, plan.seed, plan.dtype)

    final_params, counts = [], []
    for rank in range(3):
        params, state = initial, plan.optimiser.init_state(initial)
        shares = [plan.data_order.select_sample_indices(step, rank, (1,) * 3) for step in range(EPOCH)]
        for share in shares:
            _, gradient = plan.model.loss_and_grad(data.task, params, data.train_x[share], data.train_y[share])
            params, state = plan.optimiser.update_params(params, gradient, state)
        final_params.append(params)
        counts.append(sum(map(len, shares)))

    np.testing.assert_allclose(trial.params, np.average(final_params, axis=0, weights=counts), rtol=1e-9, atol=1e-12)


def test_replicas_are_equal_only_after_an_exchange(simulate: Simulate) -> None:
    """Quality is evaluated at the end of an epoch: then all replicas must have the evaluated parameters."""
    trial = simulate(local_sgd(EPOCH), 3, hash_every_step=True)

    events = [event for rank in range(3) for event in trial.events(f"worker-{rank}", "node_hash")]
    steps = {event["metadata"]["step"] for event in events}
    distinct = {step: len({event["value"] for event in events if event["metadata"]["step"] == step}) for step in steps}
    assert distinct == {step: 1 if step % EPOCH == 0 else 3 for step in steps}


def test_timeout_of_an_exchange_covers_the_delay_of_all_local_steps(simulate: Simulate) -> None:
    """Seven steps of 4 s end 21 s after seven steps of 1 s; no single step takes longer than the timeout of 10 s."""
    groups = [{"name": "slow", "ranks": [2], "throughput": "1/s"}]
    cluster = {"worker": {"throughput": "4/s"}, "groups": groups}

    trial = simulate(local_sgd(EPOCH), 3, cluster=cluster, timeouts={"step": "10s"})

    (stop,) = trial.events("coordinator", "run_stop")
    assert stop["metadata"]["reason"] == "budget used"


def test_exchange_sends_as_many_bytes_as_one_step_of_a_ring(simulate: Simulate) -> None:
    """There is one exchange per period; a step counts its part of the bytes, which is no whole number."""
    trial, ring = (simulate(strategy, 3, cluster=LINKS) for strategy in (local_sgd(EPOCH), RING))

    for node, per_step in ring.plan.bytes_per_step.items():
        sent = trial.value(node, "node_stop")["payload_bytes_sent"]
        assert sent == per_step * trial.plan.epochs
        assert sent == pytest.approx(trial.plan.bytes_per_step[node] * trial.plan.steps, rel=1e-12)


def test_mean_step_time_equals_the_closed_form(simulate: Simulate) -> None:
    """Compute plus one exchange per τ steps: local SGD pays off where links are slow compared with compute."""
    work = {
        "cluster": LINKS,
        "batch": 40,
        "epochs": 4,
        "model": {"kind": "mlp", "hidden": [512]},
        "optimiser": {"kind": "sgd", "rate": 1e-4},
    }
    trial = simulate(local_sgd(2), 4, **work)

    mean_s = np.mean([row["step_s"] for rank in range(4) for row in trial.steps(rank)])

    exchange_s = 2 * 3 / 4 * trial.plan.vector_bytes / to_goodput_bytes_per_s(1e6)
    assert trial.plan.predicted.exchange_s == pytest.approx(exchange_s / 2, rel=1e-6)
    assert mean_s == pytest.approx(trial.plan.predicted.step_s, rel=0.02)


def test_rare_exchanges_over_slow_links_reach_the_target_sooner(simulate: Simulate) -> None:
    """An exchange takes about as long as 16 steps: 16 steps per exchange save most of the time and few samples."""
    links = {"throughput": "2000/s", "uplink": "10mbit", "downlink": "10mbit"}
    work = {
        "dataset": {"kind": "digits"},
        "model": {"kind": "mlp", "hidden": [256, 128]},
        "optimiser": {"kind": "momentum", "rate": 0.1, "momentum": 0.9},
        "batch": 128,
        "epochs": 12,
        "evaluate_every": 2048,  # every 16 steps
        "target": {"metric": "accuracy", "at_least": 0.9},
        "cluster": {"worker": links},
    }

    seconds = {}
    for period in (1, 16):
        trial = simulate(local_sgd(period), 4, **work)
        (start,), (stop,) = (trial.events("coordinator", key) for key in ("run_start", "run_stop"))
        assert stop["metadata"]["reason"] == "target reached"
        seconds[period] = stop["time_ms"] - start["time_ms"]

    assert seconds[1] >= 5 * seconds[16]
