"""Properties of DiLoCo: its limits, fragments, exchanges beside the compute, evaluations, bytes and closed forms."""

from collections.abc import Callable
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cluster.links.fluid_link import to_goodput_bytes_per_s
from services.strategies.cost_model.exchange_schedule import ExchangeSchedule

Simulate = Callable[..., Any]

EPOCH = 7  # steps, of 12 or of 13 samples: 80 in all
KEEP = {"kind": "sgd", "rate": 1}  # an outer optimiser with which the outer update is the mean
OUTER = {"kind": "momentum", "rate": 0.7, "momentum": 0.9, "nesterov": True}
COLLECTIVES = ["ring", "recursive_doubling", "halving_doubling", "tree", "double_tree", "reduce_to_one", "hierarchical"]
LINKS = {"worker": {"throughput": "1000/s", "uplink": "1mbit", "downlink": "1mbit"}}
LARGE = {
    "cluster": LINKS,
    "batch": 40,
    "epochs": 12,
    "model": {"kind": "mlp", "hidden": [512]},
    "optimiser": {"kind": "sgd", "rate": 1e-4},
}


def diloco(period: int, **keys: Any) -> dict[str, Any]:
    return {"kind": "diloco", "period": period, **keys}


def exchange_s(vector_bytes: float) -> float:
    """Return the closed form of a ring of four workers on `LINKS`."""
    return 2 * 3 / 4 * vector_bytes / to_goodput_bytes_per_s(1e6)


def mean_step_s(trial: Any) -> float:
    return float(np.mean([row["step_s"] for rank in range(trial.plan.workers) for row in trial.steps(rank)]))


def hashes_by_step(trial: Any) -> dict[int, set[str]]:
    """Return the different digests of the workers' evaluated parameters, by step."""
    digests: dict[int, set[str]] = {}
    for rank in range(trial.plan.workers):
        for event in trial.events(f"worker-{rank}", "node_hash"):
            digests.setdefault(event["metadata"]["step"], set()).add(event["value"])
    return digests


@pytest.mark.parametrize("batch", [12, 13])
@pytest.mark.parametrize("period", [1, 3, EPOCH])
def test_outer_rate_of_one_without_momentum_equals_local_sgd(simulate: Simulate, period: int, batch: int) -> None:
    """The common parameters minus their mean change are the mean of the workers' parameters."""
    work = {"batch": batch, "precision": "fp64"}

    trial = simulate(diloco(period, outer=KEEP), 3, **work)

    expected = simulate({"kind": "local_sgd", "period": period}, 3, **work)
    np.testing.assert_allclose(trial.params, expected.params, rtol=1e-9, atol=1e-12)


def test_period_of_one_with_sgd_equals_synchronous_training(simulate: Simulate) -> None:
    """One local step each, and the mean of the changes: a step with the mean gradient."""
    work = {"optimiser": {"kind": "sgd", "rate": 0.05}, "precision": "fp64"}

    trial, ring = simulate(diloco(1, outer=KEEP), 3, **work), simulate({"kind": "all_reduce"}, 3, **work)

    np.testing.assert_allclose(trial.params, ring.params, rtol=1e-9, atol=1e-12)


@given(period=st.integers(1, 120), fragments=st.integers(1, 120))
def test_exchanges_are_evenly_spread_and_every_fragment_is_exchanged_once_per_period(
    period: int, fragments: int
) -> None:
    """Fragments need not divide the period: 36 fragments of a model may be exchanged within 100 steps."""
    fragments = min(fragments, period)
    schedule = ExchangeSchedule(period, fragments)

    gaps = [schedule.steps_before_exchange(number) for number in range(2 * fragments)]

    steps = np.cumsum(gaps)
    assert {min(gaps), max(gaps)} <= {period // fragments, ceil(period / fragments)}
    assert (steps[fragments:] - steps[:fragments] == period).all()
    assert (steps <= period).sum() == fragments
    in_round = gaps[: schedule.reduce().exchanges]
    assert gaps == in_round * (2 * fragments // len(in_round))
    assert sum(in_round) == schedule.reduce().period
    for step in range(2 * period):
        assert schedule.steps_since_exchange(step) == step - max([0, *steps[steps <= step]])
        extra = step > 0 and step not in steps
        assert schedule.count_exchanges(step, ends_with_exchange=True) == (steps <= step).sum() + extra


def train_without_nodes(plan: Any, period: int, fragments: int, overlap: float, weight: float) -> Any:
    """Return the common parameters after the budget, computed by three workers in one loop, in the order of ranks."""
    data, ranks = plan.dataset.load("float64"), range(3)
    common = plan.model.init_parameters(data.task, plan.seed, plan.dtype)
    own, states = [common] * 3, [plan.optimiser.init_state(common)] * 3
    ends = [common.size * number // fragments for number in range(fragments + 1)]
    parts = [np.arange(start, end) for start, end in pairwise(ends)]
    velocity, counts = np.zeros_like(common), np.zeros((fragments, 3))
    waiting: tuple[int, int, Any] | None = None  # start step, fragment, mean change

    def apply(part: Any, change: Any) -> None:
        velocity[part] = 0.9 * velocity[part] + change
        common[part] -= 0.7 * (change + 0.9 * velocity[part])
        for rank in ranks:
            own[rank] = own[rank].copy()
            own[rank][part] = (1 - weight) * own[rank][part] + weight * common[part]

    common = common.copy()
    for step in range(plan.steps):
        for rank in ranks:
            share = plan.data_order.select_sample_indices(step, rank, (1,) * 3)
            _, gradient = plan.model.loss_and_grad(data.task, own[rank], data.train_x[share], data.train_y[share])
            own[rank], states[rank] = plan.optimiser.update_params(own[rank], gradient, states[rank])
            counts[:, rank] += len(share)
        if waiting and step - waiting[0] >= overlap:
            apply(parts[waiting[1]], waiting[2])
            waiting = None
        number = (step + 1) * fragments // period - 1  # exchange k follows after ⌈k·period/fragments⌉ steps
        if step + 1 == ceil((number + 1) * period / fragments) > 0:
            part, shares = parts[number % fragments], counts[number % fragments]
            mean = sum(shares[rank] * own[rank][part] for rank in ranks) / shares.sum()
            counts[number % fragments] = 0
            waiting = step, number % fragments, common[part] - mean
            if not overlap or step == plan.steps - 1:
                apply(part, waiting[2])
                waiting = None
    return common


@pytest.mark.parametrize("batch", [12, 13])
@pytest.mark.parametrize(
    ("fragments", "overlap", "weight"),
    [
        *[(1, 0, 1.0), (1, 0, 0.5), (1, 4, 1.0), (1, 2, 0.5), (7, 0, 1.0), (7, 1, 0.25)],
        *[(1, 0.5, 1.0), (1, 3.25, 0.5), (7, 2 / 3, 1.0), (3, 0, 1.0), (4, 2 / 3, 0.5), (3, 2, 1.0)],
    ],
)
def test_parameters_equal_those_of_a_computation_without_nodes(
    simulate: Simulate, fragments: int, overlap: float, weight: float, batch: int
) -> None:
    """Outer momentum, fragments and delayed merges, with equal and with unequal shares of the samples.

    A fraction of a step delays the messages of an exchange, but not its values.
    """
    strategy = diloco(EPOCH, fragments=fragments, overlap_steps=overlap, merge_weight=weight)

    trial = simulate(strategy, 3, batch=batch, epochs=3, precision="fp64")

    expected = train_without_nodes(trial.plan, EPOCH, fragments, overlap, weight)
    np.testing.assert_allclose(trial.params, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("keys", [{}, {"fragments": 3}, {"fragments": 3, "overlap_steps": 1, "merge_weight": 0.5}])
def test_one_worker_trains_and_sends_nothing(simulate: Simulate, keys: dict[str, Any]) -> None:
    """One worker has no peers; with an outer update that takes all its parameters, it equals serial training."""
    trial = simulate(diloco(3, outer=KEEP, **keys), 1, precision="fp64")

    assert trial.value("worker-0", "node_stop")["payload_bytes_sent"] == 0
    if not keys:
        serial = simulate({"kind": "none"}, 1, precision="fp64")
        np.testing.assert_allclose(trial.params, serial.params, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("average", [False, True])
def test_one_fragment_without_overlap_is_the_default_bitwise(simulate: Simulate, average: bool) -> None:
    """Streaming DiLoCo with one fragment, no overlap and full weight is DiLoCo."""
    plain = simulate(diloco(3, average_optimiser_state=average), 3)
    streaming = simulate(
        diloco(3, average_optimiser_state=average, fragments=1, overlap_steps=0, merge_weight=1, outer=OUTER), 3
    )

    assert streaming.params.tobytes() == plain.params.tobytes()


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("keys", [{}, {"fragments": 3, "overlap_steps": 1}], ids=["plain", "streaming"])
def test_common_parameters_are_equal_on_all_workers(simulate: Simulate, collective: str, keys: dict[str, Any]) -> None:
    """Every collective gives all ranks the same bits, so outer updates do, too; local steps never change them."""
    strategy = diloco(3, collective={"kind": collective}, compress={"kind": "fp16"}, **keys)

    trial = simulate(strategy, 4, cluster=LINKS)

    by_step = hashes_by_step(trial)
    assert sorted(by_step) == [EPOCH, 2 * EPOCH, 3 * EPOCH]
    assert all(len(digests) == 1 for digests in by_step.values())


@pytest.mark.parametrize("kind", ["local_sgd", "diloco"])
def test_evaluation_between_exchanges_uses_the_last_common_parameters(simulate: Simulate, kind: str) -> None:
    """After 7 steps with a period of 4, the evaluated parameters are those that all workers have after 4 steps."""
    trial = simulate({"kind": kind, "period": 4}, 3, epochs=2)

    exchanged = simulate({"kind": kind, "period": 4}, 3, epochs=1, hash_every_step=True)

    (after_four_steps,) = hashes_by_step(exchanged)[4]
    assert hashes_by_step(trial)[EPOCH] == {after_four_steps}
    assert len(hashes_by_step(trial)[2 * EPOCH]) == 1


@pytest.mark.parametrize("kind", ["local_sgd", "diloco"])
def test_last_step_of_the_budget_ends_with_an_exchange(simulate: Simulate, kind: str) -> None:
    """Otherwise the last steps would be in no evaluated model. 7 steps with a period of 4 have two exchanges."""
    trial = simulate({"kind": kind, "period": 4}, 3, epochs=1, hash_every_step=True)

    by_step = hashes_by_step(trial)
    assert {step: len(digests) for step, digests in by_step.items()} == {1: 3, 2: 3, 3: 3, 4: 1, 5: 3, 6: 3, 7: 1}
    assert by_step[7] != by_step[4]
    sent = trial.value("worker-0", "node_stop")["payload_bytes_sent"]
    assert sent == pytest.approx(2 * 4 * trial.plan.bytes_per_step["worker-0"])


@pytest.mark.parametrize("fragments", [1, 2, 3, 4])
def test_bytes_sent_are_those_of_the_plan(simulate: Simulate, fragments: int) -> None:
    """Each parameter is exchanged once per period, and the most in one exchange is one fragment."""
    trial = simulate(diloco(4, fragments=fragments), 4, cluster=LINKS, epochs=4)  # 28 steps: 7 periods

    rows = [row for rank in range(4) for row in trial.steps(rank)]
    for node, per_step in trial.plan.bytes_per_step.items():
        assert trial.value(node, "node_stop")["payload_bytes_sent"] == pytest.approx(28 * per_step)
    fragment_bytes = 2 * 3 / 4 * trial.plan.vector_bytes / fragments
    assert max(row["bytes_sent"] for row in rows) == pytest.approx(fragment_bytes, rel=0.2)


@pytest.mark.parametrize("kind", ["local_sgd", "diloco"])
def test_averaged_optimiser_state_sends_its_vectors(simulate: Simulate, kind: str) -> None:
    """Adam has two vectors: an exchange has three times the bytes, and takes three times as long."""
    strategy, work = {"kind": kind, "period": EPOCH}, {"optimiser": {"kind": "adam", "rate": 0.01}, "cluster": LINKS}

    own, averaged = (simulate(strategy | {"average_optimiser_state": average}, 3, **work) for average in (False, True))

    for node, per_step in own.plan.bytes_per_step.items():
        sent = [trial.value(node, "node_stop")["payload_bytes_sent"] for trial in (own, averaged)]
        assert sent[1] == 3 * sent[0]
        assert averaged.plan.bytes_per_step[node] == 3 * per_step
    assert averaged.plan.predicted.exchange_s == pytest.approx(3 * own.plan.predicted.exchange_s)
    assert averaged.params.tobytes() != own.params.tobytes()


def test_averaged_momentum_with_a_period_of_one_equals_synchronous_training(simulate: Simulate) -> None:
    """Parameters and momentum are linear in the gradient, so their means are those of the mean gradient."""
    work = {"batch": 13, "precision": "fp64"}  # unequal shares

    trial = simulate({"kind": "local_sgd", "period": 1, "average_optimiser_state": True}, 3, **work)

    np.testing.assert_allclose(trial.params, simulate({"kind": "all_reduce"}, 3, **work).params, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("period", "fragments"), [(2, 1), (2, 2), (3, 2), (4, 3)])
def test_step_without_overlap_equals_the_closed_form(simulate: Simulate, period: int, fragments: int) -> None:
    """Compute, and the exchange of one fragment every period / fragments steps. The run has 24 steps."""
    trial = simulate(diloco(period, fragments=fragments, outer=KEEP), 4, **LARGE)

    assert trial.plan.predicted.exchange_s == pytest.approx(exchange_s(trial.plan.vector_bytes) / period, rel=1e-3)
    assert mean_step_s(trial) == pytest.approx(trial.plan.predicted.step_s, rel=0.02)


def test_prediction_adds_the_slowest_worker_between_any_two_exchanges(simulate: Simulate) -> None:
    """With three fragments in five steps, exchanges follow after two steps, two and one; the slowest worker changes."""
    variation = {"kind": "lognormal", "sigma": 0.5}
    cluster = {"worker": {"throughput": "1000/s", "variation": variation, "uplink": "1gbit", "downlink": "1gbit"}}

    trial = simulate(diloco(5, fragments=3, outer=KEEP), 4, batch=16, epochs=20, cluster=cluster)

    assert mean_step_s(trial) == pytest.approx(trial.plan.predicted.step_s, rel=0.02)


@pytest.mark.parametrize(
    ("overlap", "throughput"),
    [(0, 200), (1, 200), (2, 200), (2, 30), (4, 30), (0.5, 30), (2 / 3, 200), (5 / 3, 200), (3.5, 30)],
    ids=str,
)
def test_overlap_hides_the_exchange_beside_the_compute(simulate: Simulate, overlap: float, throughput: int) -> None:
    """Only the part of an exchange that is longer than the compute of τ steps makes a step longer."""
    cluster = {"worker": LINKS["worker"] | {"throughput": f"{throughput}/s"}}
    strategy = diloco(4, overlap_steps=overlap, outer=KEEP)

    trial = simulate(strategy, 4, **LARGE | {"cluster": cluster, "epochs": 24})

    compute_s, whole_s = 10 / throughput, exchange_s(trial.plan.vector_bytes)
    exposed_s = max(0.0, whole_s - overlap * compute_s) / 4
    assert trial.plan.predicted.exchange_s == pytest.approx(exposed_s, rel=1e-3, abs=1e-9)
    rounds = [row["step_s"] for rank in range(4) for row in trial.steps(rank)[4:-4]]  # not the first and the last
    assert np.mean(rounds) == pytest.approx(compute_s + exposed_s, rel=0.02)
    assert sum(row["step_s"] for row in trial.steps(0)) == pytest.approx(trial.plan.predicted_s, rel=0.01)
    assert not trial.plan.predicted.inapplicable_reason


def test_a_target_that_is_reached_during_an_exchange_ends_the_run(simulate: Simulate) -> None:
    """The exchange that still runs is waited for, so no node waits for a message of a worker that has left."""
    target = {"metric": "mse", "at_most": 1e9}
    strategy = diloco(EPOCH, overlap_steps=3)  # the exchange after the last step of an epoch is under way

    trial = simulate(strategy, 3, cluster=LINKS, target=target)

    (stop,) = trial.events("coordinator", "run_stop")
    assert stop["metadata"]["reason"] == "target reached"
    sent = {trial.value(f"worker-{rank}", "node_stop")["payload_bytes_sent"] for rank in range(3)}
    assert min(sent) > 0
