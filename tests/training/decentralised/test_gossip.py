"""Properties of D-PSGD and NoLoCo: their limits, parameters, evaluations of the mean, bytes and step times."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from services.cluster.links.fluid_link import to_goodput_bytes_per_s
from services.learning.partitions.assignment import assign_training_samples
from services.strategies.random_partners import draw_pairs

Simulate = Callable[..., Any]

EPOCH = 7  # steps, of 12 or of 13 samples: 80 in all
SGD = {"kind": "sgd", "rate": 0.05}
RATE = 10e6
LINKS = {"uplink": "10mbit", "downlink": "10mbit"}
LARGE = {
    "batch": 40,
    "epochs": 24,
    "model": {"kind": "mlp", "hidden": [4096]},
    "optimiser": {"kind": "sgd", "rate": 1e-4},
    "evaluate_every": 80 * 12,
}
TOPOLOGIES = [{"kind": "ring"}, {"kind": "exponential"}, {"kind": "complete"}]
ORDERS = ["mix_first", "update_first"]
IID, UNEVEN = {"kind": "iid"}, {"kind": "sizes", "shares": [5, 3, 3, 2, 2]}


def d_psgd(topology: str = "ring", order: str = "mix_first", **keys: Any) -> dict[str, Any]:
    return {"kind": "d_psgd", "topology": {"kind": topology}, "order": order, **keys}


def noloco(period: int, **keys: Any) -> dict[str, Any]:
    return {"kind": "noloco", "period": period, **keys}


def transfer_s(trial: Any, vectors: int = 1) -> float:
    """Return the seconds in which a worker sends vectors on `LINKS`."""
    return vectors * float(trial.plan.vector_bytes) / to_goodput_bytes_per_s(RATE)


def typical_step_s(trial: Any) -> float:
    """Return the mean step time without the first and the last steps."""
    return float(np.mean([row["step_s"] for rank in range(trial.plan.workers) for row in trial.steps(rank)[4:-4]]))


def sent_bytes(trial: Any) -> dict[str, int]:
    names = (f"worker-{rank}" for rank in range(trial.plan.workers))
    return {name: trial.value(name, "node_stop")["payload_bytes_sent"] for name in names}


def planned_bytes(trial: Any) -> dict[str, float]:
    evaluations = len(trial.events("coordinator", "eval_metrics"))
    plan, steps = trial.plan, len(trial.steps(0))
    return {
        name: steps * count + evaluations * plan.evaluation_bytes.get(name, 0)
        for name, count in plan.bytes_per_step.items()
    }


def train_without_nodes(plan: Any, matrices: list[Any], order: str) -> list[Any]:
    """Return the parameters of every worker after the budget, computed in one loop from the definition of D-PSGD."""
    data, ranks = plan.dataset.load("float64"), range(plan.workers)
    parts = assign_training_samples(plan.partition, plan.dataset, plan.workers) or (None,) * plan.workers
    initial = plan.model.init_parameters(data.task, plan.seed, plan.dtype)
    own, states = [initial] * plan.workers, [plan.optimiser.init_state(initial)] * plan.workers
    for step in range(plan.steps):
        shares = [plan.data_order.select_sample_indices(step, rank, (1,) * plan.workers, parts[rank]) for rank in ranks]
        batch, matrix = sum(map(len, shares)), matrices[step % len(matrices)]
        gradients = [
            plan.model.loss_and_grad(data.task, own[rank], data.train_x[share], data.train_y[share])[1]
            * (plan.workers * len(share) / batch)
            for rank, share in enumerate(shares)
        ]
        if order == "mix_first":
            own = list(matrix @ np.array(own))
        updated = [plan.optimiser.update_params(own[rank], gradients[rank], states[rank]) for rank in ranks]
        own, states = [params for params, _ in updated], [state for _, state in updated]
        if order == "update_first":
            own = list(matrix @ np.array(own))
    return own


@pytest.mark.parametrize("partition", [IID, UNEVEN], ids=lambda partition: partition["kind"])
@pytest.mark.parametrize("batch", [12, 13])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda topology: topology["kind"])
def test_mean_equals_that_of_a_computation_without_nodes(
    simulate: Simulate, topology: dict[str, Any], order: str, batch: int, partition: dict[str, Any]
) -> None:
    """Five workers with equal and with unequal shares: x_i ← Σ_j W_ij x_j - η g_i, with momentum."""
    work = {"batch": batch, "precision": "fp64", "partition": partition}

    trial = simulate({"kind": "d_psgd", "topology": topology, "order": order}, 5, **work)

    rounds = trial.plan.strategy.topology.mixing_rounds(5)
    own = train_without_nodes(trial.plan, [each.as_matrix() for each in rounds], order)
    np.testing.assert_allclose(trial.params, np.mean(own, axis=0), rtol=1e-9, atol=1e-12)
    logged = [trial.events(f"worker-{rank}", "consensus")[-1]["value"]["distance"] for rank in range(5)]
    expected = [np.linalg.norm(params - np.mean(own, axis=0)) for params in own]
    np.testing.assert_allclose(logged, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("batch", [12, 13])
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_complete_topology_after_the_update_averages_every_step(simulate: Simulate, workers: int, batch: int) -> None:
    """With W = 1/n, all workers continue from the mean: synchronous training, for any shares of the samples."""
    work = {"batch": batch, "optimiser": SGD, "precision": "fp64"}

    trial = simulate(d_psgd("complete", "update_first"), workers, **work)

    synchronous = simulate({"kind": "all_reduce"}, workers, **work)
    np.testing.assert_allclose(trial.params, synchronous.params, rtol=1e-9, atol=1e-12)
    for rank in range(workers):
        for event in trial.events(f"worker-{rank}", "consensus"):
            assert event["value"]["distance"] <= 1e-12 * event["value"]["mean_norm"]


@pytest.mark.parametrize("order", ORDERS)
def test_all_topologies_of_two_workers_are_equal_bitwise(simulate: Simulate, order: str) -> None:
    """Two workers can only average their parameters."""
    trials = [simulate({"kind": "d_psgd", "topology": each, "order": order}, 2) for each in TOPOLOGIES]

    assert len({trial.params.tobytes() for trial in trials}) == 1


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("optimiser", [SGD, {"kind": "adam", "rate": 0.01}], ids=lambda optimiser: optimiser["kind"])
def test_one_worker_equals_serial_training_bitwise(simulate: Simulate, order: str, optimiser: dict[str, Any]) -> None:
    """One worker has no neighbour to mix with, and sends nothing. Its plan still says that the strategy is gossip."""
    trial = simulate(d_psgd(order=order), 1, optimiser=optimiser)

    assert trial.params.tobytes() == simulate({"kind": "none"}, 1, optimiser=optimiser).params.tobytes()
    assert sent_bytes(trial) == {"worker-0": 0}
    assert trial.plan.evaluation_bytes == {}
    assert trial.plan.is_gossip


@pytest.mark.parametrize("strategy", [d_psgd(), noloco(3)], ids=lambda strategy: strategy["kind"])
def test_runs_with_the_same_seed_are_equal_bitwise(simulate: Simulate, strategy: dict[str, Any]) -> None:
    """Vectors are added in a fixed order, and all workers draw the same pairs."""
    first, second = (simulate(strategy, 4) for _ in range(2))

    assert first.params.tobytes() == second.params.tobytes()


@pytest.mark.parametrize("strategy", [d_psgd(), d_psgd(order="update_first"), noloco(3)], ids=repr)
def test_workers_evaluate_the_same_mean_and_keep_their_own_parameters(
    simulate: Simulate, strategy: dict[str, Any]
) -> None:
    """The mean is only evaluated: an evaluation more or less changes no result."""
    often, rarely = (simulate(strategy, 4, evaluate_every=samples) for samples in (80, 240))

    assert often.params.tobytes() == rarely.params.tobytes()
    digests: dict[int, set[str]] = {}
    for rank in range(4):
        for event in often.events(f"worker-{rank}", "node_hash"):
            digests.setdefault(event["metadata"]["step"], set()).add(event["value"])
    assert {step: len(values) for step, values in digests.items()} == {EPOCH: 1, 2 * EPOCH: 1, 3 * EPOCH: 1}


@pytest.mark.parametrize(
    "strategy",
    [*(d_psgd(topology["kind"], order) for topology in TOPOLOGIES for order in ORDERS), noloco(1), noloco(3)],
    ids=repr,
)
def test_nodes_send_exactly_the_planned_bytes(simulate: Simulate, strategy: dict[str, Any]) -> None:
    """Every step sends whole vectors to neighbours, and every evaluation adds one all-reduce."""
    trial = simulate(strategy, 6)

    assert sent_bytes(trial) == pytest.approx(planned_bytes(trial), rel=1e-12)


@pytest.mark.parametrize("strategy", [d_psgd(), d_psgd(order="update_first"), noloco(3)], ids=repr)
def test_a_target_ends_the_run_without_open_exchanges(simulate: Simulate, strategy: dict[str, Any]) -> None:
    """No worker starts the exchange of a step that never comes, so the bytes are still those of the plan."""
    trial = simulate(strategy, 4, target={"metric": "mse", "at_most": 1e9}, evaluate_every=60)

    (stop,) = trial.events("coordinator", "run_stop")
    assert stop["metadata"]["reason"] == "target reached"
    if strategy["kind"] == "d_psgd":
        assert sent_bytes(trial) == planned_bytes(trial)


@pytest.mark.parametrize(("topology", "vectors"), [("ring", 2), ("exponential", 1), ("complete", 3)])
def test_step_that_updates_first_takes_compute_and_transfer(simulate: Simulate, topology: str, vectors: int) -> None:
    """One latency, and as many vectors as neighbours: t_c + α + d·S·β."""
    worker = {"throughput": "200/s", "delay": "5ms", **LINKS}

    trial = simulate(d_psgd(topology, "update_first"), 4, cluster={"worker": worker}, **LARGE)

    expected_s = 0.05 + 0.010 + transfer_s(trial, vectors)
    assert trial.plan.predicted.step_s == pytest.approx(expected_s, rel=1e-6)
    assert typical_step_s(trial) == pytest.approx(expected_s, rel=0.02)
    assert not trial.plan.predicted.inapplicable_reason


@pytest.mark.parametrize("throughput", [20, 1000])
def test_step_that_mixes_first_hides_the_exchange_beside_the_compute(simulate: Simulate, throughput: int) -> None:
    """The parameters to mix are known before the compute: max(t_c, α + d·S·β)."""
    worker = {"throughput": f"{throughput}/s", "delay": "5ms", **LINKS}

    trial = simulate(d_psgd(), 4, cluster={"worker": worker}, **LARGE)

    expected_s = max(10 / throughput, 0.010 + transfer_s(trial, 2))
    assert trial.plan.predicted.step_s == pytest.approx(expected_s, rel=1e-6)
    assert typical_step_s(trial) == pytest.approx(expected_s, rel=0.02)


def test_distant_workers_do_not_wait_for_each_other(simulate: Simulate) -> None:
    """On a ring of eight, random delays average out over neighbours; an all-reduce waits for the slowest of all."""
    cluster = {"worker": {"throughput": "200/s", "variation": {"kind": "lognormal", "sigma": 0.5}}}
    work = {"batch": 40, "epochs": 24, "evaluate_every": 80 * 24, "cluster": cluster}

    trial, ring = (simulate(strategy, 8, **work) for strategy in (d_psgd(), {"kind": "all_reduce"}))

    duration_s, ring_s = (
        max(sum(row["step_s"] for row in each.steps(rank)) for rank in range(8)) for each in (trial, ring)
    )
    assert duration_s < 0.9 * ring_s
    assert duration_s == pytest.approx(trial.plan.predicted_s, rel=0.03)


def test_evaluation_exchange_is_part_of_the_predicted_training_time(simulate: Simulate) -> None:
    """The all-reduce before an evaluation takes the time of its closed form, outside of steps."""
    trial = simulate(d_psgd(order="update_first"), 4, cluster={"worker": {"throughput": "200/s", **LINKS}}, **LARGE)

    (start,), (stop,) = (trial.events("coordinator", key) for key in ("run_start", "run_stop"))
    seconds = [event["value"]["seconds"] for event in trial.events("worker-0", "consensus")]
    ring_s = 2 * 3 / 4 * transfer_s(trial)
    assert trial.plan.predicted.evaluation_exchange_s == pytest.approx(ring_s, rel=1e-3)
    assert seconds == pytest.approx([ring_s, ring_s], rel=0.02)
    assert (stop["time_ms"] - start["time_ms"]) / 1e3 == pytest.approx(trial.plan.predicted_s, rel=0.02)


@pytest.mark.parametrize(
    "partition", [IID, {"kind": "sizes", "shares": [5, 2]}], ids=lambda partition: partition["kind"]
)
@pytest.mark.parametrize("batch", [12, 13])
def test_noloco_of_two_workers_without_momentum_equals_local_sgd(
    simulate: Simulate, batch: int, partition: dict[str, Any]
) -> None:
    """The pair is all workers; with a rate and a pull of 1, both continue from the mean of their parameters."""
    work = {"batch": batch, "precision": "fp64", "partition": partition}

    trial = simulate(noloco(3, rate=1, momentum=0, pull=1), 2, **work)

    expected = simulate({"kind": "local_sgd", "period": 3}, 2, **work)
    np.testing.assert_allclose(trial.params, expected.params, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("pull", [0.3, 1])
def test_noloco_of_two_workers_equals_diloco(simulate: Simulate, pull: float) -> None:
    """Both workers have the same slow parameters, so the pull has no effect, and the outer update is that of DiLoCo."""
    outer = {"kind": "momentum", "rate": 0.7, "momentum": 0.5}

    trial = simulate(noloco(EPOCH, pull=pull), 2, precision="fp64")

    expected = simulate({"kind": "diloco", "period": EPOCH, "outer": outer}, 2, precision="fp64")
    np.testing.assert_allclose(trial.params, expected.params, rtol=1e-9, atol=1e-12)


def test_noloco_equals_a_computation_without_nodes(simulate: Simulate) -> None:
    """Four workers, from the definition: momentum, mean change of the pair, and the pull of the slow parameters."""
    alpha, beta, gamma = 0.5, 0.7, 0.6
    trial = simulate(noloco(EPOCH, momentum=alpha, rate=beta, pull=gamma), 4, precision="fp64")

    plan, data, ranks = trial.plan, trial.plan.dataset.load("float64"), range(4)
    initial = plan.model.init_parameters(data.task, plan.seed, plan.dtype)
    slow, momentum = np.array([initial] * 4), np.zeros((4, initial.size))
    states, counts = [plan.optimiser.init_state(initial)] * 4, np.zeros(4)
    own = slow.copy()
    for step in range(plan.steps):
        for rank in ranks:
            share = plan.data_order.select_sample_indices(step, rank, (1,) * 4)
            counts[rank] += len(share)
            _, gradient = plan.model.loss_and_grad(data.task, own[rank], data.train_x[share], data.train_y[share])
            own[rank], states[rank] = plan.optimiser.update_params(own[rank], gradient, states[rank])
        if (step + 1) % EPOCH == 0:
            partners = draw_pairs(plan.seed, step // EPOCH, 4)
            change = (own - slow) * (4 * counts / counts.sum())[:, None]
            pair = [[rank, partners[rank]] for rank in ranks]
            mean_change, mean_slow = (np.array([each[both].mean(axis=0) for both in pair]) for each in (change, slow))
            momentum = alpha * momentum + beta * mean_change - gamma * (slow - mean_slow)
            slow, counts = slow + momentum, np.zeros(4)
            own = slow.copy()

    np.testing.assert_allclose(trial.params, slow.mean(axis=0), rtol=1e-9, atol=1e-12)


def test_noloco_evaluates_the_slow_parameters_of_the_last_exchange(simulate: Simulate) -> None:
    """After 7 steps with a period of 4, the evaluated mean is that after 4 steps, as under DiLoCo."""
    trial = simulate(noloco(4), 4, epochs=2)

    evaluated, exchanged = trial.epoch_params[0], simulate(noloco(4), 4, epochs=2, evaluate_every=48).epoch_params[0]
    assert evaluated.tobytes() == exchanged.tobytes()


def test_noloco_step_takes_compute_and_a_share_of_one_transfer(simulate: Simulate) -> None:
    """One vector to one partner every H steps: t_c + (α + S·β)/H, whatever the number of workers."""
    worker = {"throughput": "200/s", "delay": "5ms", **LINKS}

    trial = simulate(noloco(4), 8, cluster={"worker": worker}, **LARGE)

    expected_s = 0.025 + (0.010 + transfer_s(trial)) / 4
    assert trial.plan.predicted.step_s == pytest.approx(expected_s, rel=1e-6)
    assert typical_step_s(trial) == pytest.approx(expected_s, rel=0.02)


@pytest.mark.parametrize("workers", [1, 2, 4, 6, 16])
def test_partners_are_mutual_and_differ_between_exchanges(workers: int) -> None:
    """A worker that waited for a partner that sends to a third one would wait forever."""
    drawn = [draw_pairs(3, number, workers) for number in range(40)]

    for partners in drawn:
        assert all(partners[partners[rank]] == rank for rank in range(workers))
        assert workers == 1 or all(partners[rank] != rank for rank in range(workers))
    met = Counter(pair for partners in drawn for pair in enumerate(partners))
    assert len(met) == (workers * (workers - 1) if workers > 1 else 1) or workers == 16
    assert drawn != [draw_pairs(4, number, workers) for number in range(40)] or workers <= 2


def test_spread_of_parameters_falls_with_the_number_of_neighbours(simulate: Simulate) -> None:
    """The consensus distance is what a topology with fewer messages costs."""
    distances = {}
    for kind in ("ring", "exponential", "complete"):
        trial = simulate(d_psgd(kind, "update_first"), 16, batch=64, epochs=4, optimiser=SGD, precision="fp64")
        values = [trial.events(f"worker-{rank}", "consensus")[-1]["value"]["distance"] for rank in range(16)]
        distances[kind] = float(np.sqrt(np.mean(np.square(values))))

    assert distances["complete"] < 1e-12 < distances["exponential"] < distances["ring"]
