"""Gradient exchange during the backward pass: the same sums, in less time, as the closed form predicts."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from services.scenario.learning_task import learning_task_of

Simulate = Callable[..., Any]

RING = {"kind": "all_reduce"}
WORK = {
    "model": {"kind": "mlp", "hidden": [256, 256, 256]},
    "optimiser": {"kind": "sgd", "rate": 1e-3},
    "batch": 40,
    "epochs": 4,
}  # 135,000 parameters: 0.5 MB


def overlapped(size: str, **keys: Any) -> dict[str, Any]:
    return {"kind": "all_reduce", "overlap": {"kind": "buckets", "bucket_size": size}, **keys}


def links(rate: str, **worker: Any) -> dict[str, Any]:
    return {"worker": {"throughput": "100/s", "uplink": rate, "downlink": rate, **worker}}


@pytest.mark.parametrize("size", ["1B", "100kB", "25MB"])
def test_two_workers_train_to_the_same_bits_with_and_without_overlap(simulate: Simulate, size: str) -> None:
    """Two summands have one order, whatever the places at which a vector is cut."""
    trial, whole = (simulate(strategy, 2, cluster=links("20mbit"), **WORK) for strategy in (overlapped(size), RING))

    assert trial.params.tobytes() == whole.params.tobytes()


@pytest.mark.parametrize("kind", ["ring", "halving_doubling", "tree", "double_tree", "recursive_doubling"])
@pytest.mark.parametrize("workers", [3, 4])
def test_replicas_are_equal_after_every_step(simulate: Simulate, kind: str, workers: int) -> None:
    """Buckets of a step must not be added to those of another."""
    strategy = overlapped("100kB", collective={"kind": kind})

    trial = simulate(strategy, workers, cluster=links("20mbit"), hash_every_step=True, **WORK)

    events = [event for rank in range(workers) for event in trial.events(f"worker-{rank}", "node_hash")]
    steps = {event["metadata"]["step"] for event in events}
    assert {len({event["value"] for event in events if event["metadata"]["step"] == step}) for step in steps} == {1}


@pytest.mark.parametrize("compress", ["identity", "fp16"])
def test_speed_of_links_and_devices_changes_no_bit(simulate: Simulate, compress: str) -> None:
    """The order of the sums follows from the buckets alone, not from the times at which they are ready."""
    strategy = overlapped("100kB", compress={"kind": compress})
    slow_worker = [{"name": "slow", "ranks": [1], "throughput": "30/s"}]

    fast, slow, uneven = (
        simulate(strategy, 4, cluster=cluster, **WORK)
        for cluster in (links("1gbit"), links("5mbit"), links("20mbit") | {"groups": slow_worker})
    )

    assert fast.params.tobytes() == slow.params.tobytes() == uneven.params.tobytes()


@pytest.mark.parametrize("rate", ["400mbit", "100mbit", "10mbit"])  # a quarter of the backward pass, equal, ten times
@pytest.mark.parametrize("size", ["50kB", "200kB"])
def test_step_time_equals_the_closed_form(simulate: Simulate, rate: str, size: str) -> None:
    """Communication as long as the backward pass is hidden except for the last bucket."""
    trial = simulate(overlapped(size), 4, cluster=links(rate), **WORK)
    whole = simulate(RING, 4, cluster=links(rate), **WORK)

    mean_s = np.mean([row["step_s"] for rank in range(4) for row in trial.steps(rank)])

    assert mean_s == pytest.approx(trial.plan.predicted.step_s, rel=0.02)
    assert trial.plan.predicted.step_s < whole.plan.predicted.step_s
    forward_s, backward_s = 0.1 / 3, 0.1 * 2 / 3
    bound_s = forward_s + max(backward_s, whole.plan.predicted.exchange_s)
    assert bound_s <= trial.plan.predicted.step_s * 1.001


def test_exposed_and_hidden_parts_are_the_whole_communication(simulate: Simulate) -> None:
    """A step's exchange is the time for which the worker waits; the rest of the communication costs nothing."""
    trial = simulate(overlapped("100kB"), 4, cluster=links("200mbit"), **WORK)
    whole = simulate(RING, 4, cluster=links("200mbit"), **WORK)

    rows = [row for rank in range(4) for row in trial.steps(rank)]
    communication_s = np.mean([row["hidden_s"] + row["exchange_s"] for row in rows])

    assert communication_s == pytest.approx(np.mean([row["exchange_s"] for row in whole.steps(0)]), rel=0.03)
    assert np.mean([row["hidden_s"] for row in rows]) > np.mean([row["exchange_s"] for row in rows])
    assert all(row["hidden_s"] is None for row in whole.steps(0))


def test_single_bucket_is_an_exchange_after_the_backward_pass(simulate: Simulate) -> None:
    """The limits of the size of buckets: one bucket hides nothing."""
    trial, whole = (simulate(strategy, 4, cluster=links("50mbit"), **WORK) for strategy in (overlapped("1GB"), RING))

    assert len(trial.plan.strategy.overlap.buckets) == 1
    assert [row["step_s"] for row in trial.steps(0)] == pytest.approx([row["step_s"] for row in whole.steps(0)])


@pytest.mark.parametrize("compress", ["identity", "fp16"])
def test_workers_send_the_planned_bytes(simulate: Simulate, compress: str) -> None:
    """Chunks of buckets have other sizes than chunks of the whole vector."""
    trial = simulate(overlapped("100kB", compress={"kind": compress}), 3, cluster=links("50mbit"), **WORK)

    for rank in range(3):
        sent = trial.value(f"worker-{rank}", "node_stop")["payload_bytes_sent"]
        assert sent == trial.plan.bytes_per_step[f"worker-{rank}"] * trial.plan.steps


def test_buckets_cover_the_vector_in_the_order_of_the_backward_pass(simulate: Simulate) -> None:
    """Every parameter is summed once, and the work of the backward pass is divided among the buckets."""
    buckets = simulate(overlapped("100kB"), 2, **WORK).plan.strategy.overlap.buckets

    assert len(buckets) > 2
    assert [bucket.start for bucket in buckets[:-1]] == [bucket.stop for bucket in buckets[1:]]
    assert buckets[-1].start == 0
    assert sum(bucket.backward_share for bucket in buckets) == pytest.approx(1)


def test_chosen_buckets_grow_with_latency(simulate: Simulate) -> None:
    """A bucket whose exchange is mostly latency hides little and costs a message more."""
    counts = [
        len(
            simulate(
                overlapped("auto"), 4, cluster=links("50mbit", delay=delay), **WORK | {"epochs": 1}
            ).plan.strategy.overlap.buckets
        )
        for delay in ("10us", "1ms", "20ms")
    ]

    assert counts[0] > counts[-1] == 1
    assert counts == sorted(counts, reverse=True)


def test_chosen_buckets_without_link_rates_are_one_bucket(simulate: Simulate) -> None:
    """Without rates, no transfer time can be hidden."""
    assert len(simulate(overlapped("auto"), 2, **WORK | {"epochs": 1}).plan.strategy.overlap.buckets) == 1


def test_workers_at_the_speed_of_the_host_report_buckets_when_they_are_computed(simulate: Simulate) -> None:
    """Without a declared speed, buckets are exchanged in the order in which the host computes them."""
    cluster = {"worker": {"uplink": "20mbit", "downlink": "20mbit", "throughput": None}}

    trial, whole = (simulate(strategy, 2, cluster=cluster, **WORK) for strategy in (overlapped("100kB"), RING))

    assert trial.params.tobytes() == whole.params.tobytes()


PRIORITY = {"kind": "all_reduce", "overlap": {"kind": "priority", "partition_size": "20kB"}}
LENET = {  # most operations in the first layers, most parameters in the last ones
    "dataset": {"kind": "digits"},
    "model": {"kind": "lenet5"},
    "optimiser": {"kind": "sgd", "rate": 0.1},
    "batch": 40,
    "epochs": 1,
}


@pytest.mark.parametrize("rate", ["100mbit", "40mbit", "10mbit"])
def test_step_time_by_priority_equals_the_closed_form(simulate: Simulate, rate: str) -> None:
    """The next forward pass begins while parameters of later layers are still on their way."""
    trial = simulate(PRIORITY, 4, cluster=links(rate), **LENET)

    rows = [row for rank in range(4) for row in trial.steps(rank) if row["step"]]  # the first step has none before it
    assert np.mean([row["step_s"] for row in rows]) == pytest.approx(trial.plan.predicted.step_s, rel=0.02)


def test_priority_is_faster_than_the_order_of_the_backward_pass(simulate: Simulate) -> None:
    """A large last layer blocks the links for the first layers, which the next step needs first."""
    by_priority, in_order = (
        simulate(strategy, 4, cluster=links("30mbit"), **LENET) for strategy in (PRIORITY, overlapped("20kB"))
    )

    step_s = [np.mean([row["step_s"] for row in trial.steps(0)]) for trial in (by_priority, in_order)]
    order = [part.bucket for part in by_priority.plan.strategy.overlap.order]
    assert step_s[0] < 0.85 * step_s[1]
    assert order != sorted(order)  # parts of first layers have overtaken those of the last layer


def test_priority_changes_no_bit_of_two_workers(simulate: Simulate) -> None:
    """Only the times of the exchange differ."""
    by_priority, whole = (simulate(strategy, 2, cluster=links("40mbit"), **WORK) for strategy in (PRIORITY, RING))

    assert by_priority.params.tobytes() == whole.params.tobytes()


def test_step_after_an_evaluation_does_not_begin_early(simulate: Simulate) -> None:
    """The evaluation needs all parameters: the forward pass that follows it begins after it."""
    trial = simulate(PRIORITY, 4, cluster=links("20mbit"), **LENET | {"epochs": 2})

    rows = trial.steps(0)
    epochs = [[row["step_s"] for row in rows if row["epoch"] == epoch] for epoch in (1, 2)]
    assert epochs[1] == pytest.approx(epochs[0], rel=1e-4)
    assert epochs[1][0] > 1.05 * epochs[1][1]
    assert sum(row["step_s"] for row in rows) == pytest.approx(trial.plan.predicted_s, rel=0.01)


@pytest.mark.parametrize("strategy", [overlapped("100kB"), PRIORITY])
def test_every_exchange_of_a_bucket_is_logged(simulate: Simulate, strategy: dict[str, Any]) -> None:
    """Its times are those that the step log sums up, and its bytes those that the worker has sent."""
    trial = simulate(strategy, 3, cluster=links("40mbit"), **LENET)

    order = trial.plan.strategy.overlap.exchange_order
    for rank in range(3):
        rows, steps = trial.rows(f"worker-{rank}", "node_buckets"), trial.steps(rank)
        assert [row["bucket"] for row in rows] == [part.bucket for part in order] * len(steps)
        for step in steps:
            of_step = [row for row in rows if row["step"] == step["step"]]
            assert len({(row["bucket"], row["part"]) for row in of_step}) == len(order)
            assert sum(row["bytes_sent"] for row in of_step) == step["bytes_sent"]
            communication_s = sum(row["end_s"] - row["begin_s"] for row in of_step)
            assert communication_s == pytest.approx(step["exchange_s"] + step["hidden_s"], abs=1e-4)
            assert min(row["begin_s"] for row in of_step) >= step["start_s"]
            assert max(row["end_s"] for row in of_step) <= step["start_s"] + step["step_s"] + 1e-5


def test_buckets_name_their_arrays(simulate: Simulate) -> None:
    """A trace shows which layer is exchanged."""
    plan = simulate(overlapped("20kB"), 2, **LENET).plan

    names = [name for bucket in reversed(plan.strategy.overlap.buckets) for name in bucket.arrays]
    layout = plan.model.parameter_layout(learning_task_of(plan.dataset)[0])
    assert len(plan.strategy.overlap.buckets) > 1
    assert names == [name for name, _ in layout.arrays]


@pytest.mark.parametrize(
    "overlap", [{"kind": "buckets", "bucket_size": "1kB"}, {"kind": "priority", "partition_size": "1kB"}]
)
def test_a_switch_may_end_the_overlap(simulate: Simulate, overlap: dict[str, Any]) -> None:
    """The messages of many parts must not have higher numbers than those of later steps, which would be dropped."""
    rule = {"kind": "at", "fraction": 0.5}
    strategy = {"kind": "strategy_switch", "before": RING | {"overlap": overlap}, "after": RING, "when": rule}

    trial, whole = (simulate(each, 2, cluster=links("20mbit"), **LENET) for each in (strategy, RING))

    assert trial.events("coordinator", "switch_committed")
    assert trial.params.tobytes() == whole.params.tobytes()
