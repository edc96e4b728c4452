"""Laws of local SGD: its ends are training alone and training together, and an exchange is the mean of all."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from services.cluster.links.fluid_link import goodput_bytes_per_s

Rehearse = Callable[..., Any]

EPOCH = 7  # steps, of 12 or of 13 samples: 80 in all
RING = {"kind": "all_reduce"}
SGD = {"kind": "sgd", "rate": 0.05}
LINKS = {"worker": {"throughput": "1000/s", "uplink": "1mbit", "downlink": "1mbit"}}


def local(period: int, **keys: Any) -> dict[str, Any]:
    return {"kind": "local_sgd", "period": period, **keys}


@pytest.mark.parametrize("batch", [12, 13])
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_a_period_of_one_is_training_together(rehearse: Rehearse, workers: int, batch: int) -> None:
    """The mean of one step each is one step of the mean, whatever share of the samples each has."""
    work = {"batch": batch, "optimiser": SGD, "precision": "fp64"}

    done, together = rehearse(local(1), workers, **work), rehearse(RING, workers, **work)

    np.testing.assert_allclose(done.params, together.params, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("period", [1, EPOCH])
@pytest.mark.parametrize("optimiser", [SGD, {"kind": "adam", "rate": 0.01}], ids=lambda each: each["kind"])
def test_one_worker_trains_alone_to_the_last_bit(rehearse: Rehearse, period: int, optimiser: dict[str, Any]) -> None:
    """It meets nobody."""
    done = rehearse(local(period), 1, optimiser=optimiser)

    assert done.params.tobytes() == rehearse({"kind": "none"}, 1, optimiser=optimiser).params.tobytes()


@pytest.mark.parametrize("collective", ["ring", "tree", "reduce_to_one"])
@pytest.mark.parametrize("batch", [12, 13])
def test_an_epoch_apart_ends_with_the_mean_by_samples(rehearse: Rehearse, collective: str, batch: int) -> None:
    """Computed here again without any node: each rank trains its shares, and counts by how many they were."""
    strategy = local(EPOCH, collective={"kind": collective})
    done = rehearse(strategy, 3, batch=batch, epochs=1, precision="fp64")
    plan, data = done.plan, done.plan.dataset.load("float64")
    begin = plan.model.init_parameters(data.task, plan.seed, plan.dtype)

    ends, counts = [], []
    for rank in range(3):
        params, state = begin, plan.optimiser.init_state(begin)
        shares = [plan.data_order.rank_sample_indices(step, rank, (1,) * 3) for step in range(EPOCH)]
        for share in shares:
            _, gradient = plan.model.loss_and_grad(data.task, params, data.train_x[share], data.train_y[share])
            params, state = plan.optimiser.update_params(params, gradient, state)
        ends.append(params)
        counts.append(sum(map(len, shares)))

    np.testing.assert_allclose(done.params, np.average(ends, axis=0, weights=counts), rtol=1e-9, atol=1e-12)


def test_replicas_agree_after_an_exchange_and_only_then(rehearse: Rehearse) -> None:
    """Quality is measured at the end of an epoch: all must hold then what is measured."""
    done = rehearse(local(EPOCH), 3, hash_every_step=True)

    told = [event for rank in range(3) for event in done.events(f"worker-{rank}", "node_hash")]
    steps = {event["metadata"]["step"] for event in told}
    different = {step: len({event["value"] for event in told if event["metadata"]["step"] == step}) for step in steps}
    assert different == {step: 1 if step % EPOCH == 0 else 3 for step in steps}


def test_a_worker_that_lags_by_a_little_in_each_step_is_waited_for_at_the_end_of_them(rehearse: Rehearse) -> None:
    """Seven steps of 4 s are 21 s behind those of 1 s; no step is 10 s long."""
    groups = [{"name": "slow", "ranks": [2], "throughput": "1/s"}]
    cluster = {"worker": {"throughput": "4/s"}, "groups": groups}

    done = rehearse(local(EPOCH), 3, cluster=cluster, timeouts={"step": "10s"})

    (stop,) = done.events("coordinator", "run_stop")
    assert stop["metadata"]["reason"] == "budget used"


def test_an_exchange_sends_what_a_ring_sends_in_a_step(rehearse: Rehearse) -> None:
    """Once for a whole period; a step has its part of that, which is no whole number of bytes."""
    done, ring = (rehearse(strategy, 3, cluster=LINKS) for strategy in (local(EPOCH), RING))

    for node, per_step in ring.plan.bytes_per_step.items():
        sent = done.value(node, "node_stop")["payload_bytes_sent"]
        assert sent == per_step * done.plan.epochs
        assert sent == pytest.approx(done.plan.bytes_per_step[node] * done.plan.steps, rel=1e-12)


def test_a_mean_step_takes_the_closed_forms_seconds(rehearse: Rehearse) -> None:
    """t_c + an exchange in τ steps: what makes it worth while is links that are slow against the mathematics."""
    work = {
        "cluster": LINKS,
        "batch": 40,
        "epochs": 4,
        "model": {"kind": "mlp", "hidden": [512]},
        "optimiser": {"kind": "sgd", "rate": 1e-4},
    }
    done = rehearse(local(2), 4, **work)

    mean_s = np.mean([row["step_s"] for rank in range(4) for row in done.steps(rank)])

    exchange_s = 2 * 3 / 4 * done.plan.vector_bytes / goodput_bytes_per_s(1e6)
    assert done.plan.predicted.exchange_s == pytest.approx(exchange_s / 2, rel=1e-6)
    assert mean_s == pytest.approx(done.plan.predicted.step_s, rel=0.02)
