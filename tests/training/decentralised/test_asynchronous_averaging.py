"""Partial all-reduce and AD-PSGD: averages keep the mean, gradients count once, and no slow worker is waited for."""

import hashlib
from collections.abc import Callable
from statistics import mean
from typing import Any

import numpy as np
import pytest

from services.learning.parameter_updater import ParameterUpdater
from services.schema.arrays import Vector
from services.strategies.async_averaging.ad_psgd import RandomPairByteBounds
from services.strategies.async_averaging.partial_all_reduce import GroupByteBounds

Simulate = Callable[..., Any]

SGD = {"kind": "sgd", "rate": 0.05}
IID = {"kind": "iid"}
PACED = {"throughput": "200/s", "uplink": "10mbit", "downlink": "10mbit"}
JITTER = {"worker": {**PACED, "variation": {"kind": "lognormal", "sigma": 0.4}}}
SLOW = {"name": "slow", "ranks": [3], "speed": 0.1}
PAIRS = {"kind": "partial_all_reduce", "group_size": 2}
ALL_WORKERS = {"kind": "partial_all_reduce", "group_size": 4}
AD_PSGD = {"kind": "ad_psgd"}
both = pytest.mark.parametrize("strategy", [PAIRS, AD_PSGD], ids=lambda strategy: str(strategy["kind"]))


def run_seconds(trial: Any) -> float:
    (start,), (stop,) = (trial.events("coordinator", key) for key in ("run_start", "run_stop"))
    return float(stop["time_ms"] - start["time_ms"]) / 1e3


@pytest.mark.parametrize(
    "optimiser", [SGD, {"kind": "momentum", "rate": 0.02}], ids=lambda optimiser: optimiser["kind"]
)
@pytest.mark.parametrize(("workers", "batch"), [(2, 8), (4, 8), (4, 12)])
def test_group_of_all_workers_equals_local_sgd_of_period_one_bitwise(
    simulate: Simulate, workers: int, batch: int, optimiser: dict[str, Any]
) -> None:
    """The mean over a group of all workers is the all-reduce of the parameters, also on smaller last batches."""
    keys = {"batch": batch, "optimiser": optimiser, "precision": "fp64", "hash_every_step": True}
    all_workers = simulate({"kind": "partial_all_reduce", "group_size": workers}, workers, **keys)
    local_sgd = simulate({"kind": "local_sgd", "period": 1}, workers, **keys)

    for rank in range(workers):
        hashes, expected = (
            [event["value"] for event in trial.events(f"worker-{rank}", "node_hash") if event["metadata"]["step"] > 0]
            for trial in (all_workers, local_sgd)
        )
        assert hashes
        assert set(hashes) == set(expected)


@both
def test_one_worker_equals_serial_training_bitwise(simulate: Simulate, strategy: dict[str, Any]) -> None:
    """One worker has no partner, and the result is its own model."""
    trial, serial = simulate({**strategy}, 1), simulate({"kind": "none"}, 1)

    assert trial.final_worker_params[0].tobytes() == serial.params.tobytes()


@both
@pytest.mark.parametrize(
    ("workers", "partition"), [(2, IID), (5, IID), (8, IID), (5, {"kind": "sizes", "shares": [5, 3, 3, 2, 2]})], ids=str
)
def test_averages_keep_the_mean_and_every_gradient_counts_once(
    simulate: Simulate,
    monkeypatch: pytest.MonkeyPatch,
    strategy: dict[str, Any],
    workers: int,
    partition: dict[str, Any],
) -> None:
    """The sum over workers changes only by the updates of the workers, whatever the groups or pairs are."""
    update_params, changes = ParameterUpdater.update_params, list[Vector]()

    def record_change(updater: ParameterUpdater, params: Vector, *arguments: Any) -> Any:
        updated, state = update_params(updater, params, *arguments)
        changes.append(updated - params)
        return updated, state

    monkeypatch.setattr(ParameterUpdater, "update_params", record_change)

    work = {"optimiser": SGD, "precision": "fp64", "batch": 16, "partition": partition}
    trial = simulate(strategy, workers, cluster=JITTER, **work)

    plan = trial.plan
    initial = plan.model.init_parameters(plan.dataset.load("float64").task, plan.seed, plan.dtype)
    step_count = sum(len(trial.steps(rank)) for rank in range(workers))
    training_changes = changes[-step_count:]  # the others are those of the warm-up
    total = workers * initial + np.sum(training_changes, axis=0)
    assert len(changes) == step_count + workers
    np.testing.assert_allclose(trial.params, total / workers, rtol=0, atol=1e-12)


@both
def test_result_is_the_mean_over_workers_which_differ_at_the_end(simulate: Simulate, strategy: dict[str, Any]) -> None:
    """No worker alone has used all gradients; the digest of the run is that of the mean."""
    trial = simulate(strategy, 4, cluster=JITTER, precision="fp64")

    assert len({params.tobytes() for params in trial.final_worker_params}) > 1
    final, last_evaluated = trial.events("coordinator", "eval_metrics")[-1]["value"], trial.epoch_params[-1]
    task = trial.plan.dataset.load("float64")
    predicted_loss = trial.plan.model.loss_and_grad(task.task, trial.params, task.test_x, task.test_y)[0]
    assert final["loss"] == pytest.approx(predicted_loss, rel=1e-9)
    assert not np.array_equal(trial.params, last_evaluated)


@both
@pytest.mark.parametrize("seed", range(8))
def test_no_seed_ends_in_a_deadlock_and_the_budget_is_used(
    simulate: Simulate, strategy: dict[str, Any], seed: int
) -> None:
    """Virtual time reports a deadlock as an error; every sample of the budget is used, and few more."""
    trial = simulate(strategy, 5, cluster={**JITTER, "groups": [{**SLOW, "speed": 0.3}]}, seed=seed)

    budget, used = trial.plan.sample_budget, trial.events("coordinator", "run_stop")[0]["metadata"]["samples_count"]
    assert budget <= used <= budget + trial.plan.batch
    assert sum(row["samples"] for rank in range(5) for row in trial.steps(rank)) == used


def simulate_with_target(simulate: Simulate, strategy: dict[str, Any], slow_rank: int, throughput: int) -> Any:
    """Return a trial that ends when the mean squared error of worker 0 is at most 0.7, long before the budget."""
    worker = {**JITTER["worker"], "throughput": f"{throughput}/s"}
    cluster = {"worker": worker, "groups": [{**SLOW, "ranks": [slow_rank], "speed": 0.4}]}
    work = {"batch": 16, "epochs": 60, "evaluate_every": 80, "optimiser": SGD}
    return simulate(strategy, 4, cluster=cluster, target={"metric": "mse", "at_most": 0.7}, seed=0, **work)


@pytest.mark.parametrize("strategy", [PAIRS, ALL_WORKERS, AD_PSGD], ids=["pairs", "all workers", "ad_psgd"])
@pytest.mark.parametrize("slow_rank", [0, 3])
@pytest.mark.parametrize("throughput", [20, 4000])
def test_target_ends_the_run_and_the_result_is_the_mean(
    simulate: Simulate, strategy: dict[str, Any], slow_rank: int, throughput: int
) -> None:
    """When worker 0 reaches the target, others are in a step, a group or an average; none may be left waiting.

    Virtual time reports a deadlock as an error. Bytes stay within the bounds, so the trial stays valid.
    """
    trial = simulate_with_target(simulate, strategy, slow_rank, throughput)

    (stop,) = trial.events("coordinator", "run_stop")
    *during_run, final = (event["value"] for event in trial.events("coordinator", "eval_metrics"))
    assert (stop["metadata"]["reason"], stop["metadata"]["status"]) == ("target reached", "success")
    assert sum(row["samples"] for rank in range(4) for row in trial.steps(rank)) == stop["metadata"]["samples_count"]
    assert stop["metadata"]["samples_count"] < trial.plan.sample_budget
    assert [values["mse"] <= 0.7 for values in during_run] == [False] * (len(during_run) - 1) + [True]
    data, mean = trial.plan.dataset.load(trial.plan.dtype), trial.params.astype(trial.plan.dtype)
    assert final["loss"] == trial.plan.model.loss_and_grad(data.task, mean, data.test_x, data.test_y)[0]
    assert trial.value("coordinator", "params_sha256") == hashlib.sha256(mean.tobytes()).hexdigest()
    assert len({params.tobytes() for params in trial.final_worker_params}) > 1
    check_sent_bytes(trial, strategy)


def test_target_is_decided_on_worker_0_although_the_result_is_the_mean(simulate: Simulate) -> None:
    """Here, the mean misses the target that worker 0 has reached; docs/asynchronous-averaging.md says so."""
    trial = simulate_with_target(simulate, PAIRS, 3, 20)

    *_, of_worker_0, of_mean = (event["value"]["mse"] for event in trial.events("coordinator", "eval_metrics"))
    (stop,) = trial.events("coordinator", "run_stop")
    assert of_worker_0 <= 0.7 < of_mean
    assert stop["metadata"]["target_reached"]


@both
def test_run_with_the_same_seed_repeats_exactly(simulate: Simulate, strategy: dict[str, Any]) -> None:
    """Groups and pairs depend on times and seeds, which virtual time repeats."""
    first, second, other = (simulate(strategy, 4, cluster=JITTER, seed=seed).params for seed in (1, 1, 2))

    assert first.tobytes() == second.tobytes() != other.tobytes()


@both
def test_slow_worker_delays_no_other_worker(simulate: Simulate, strategy: dict[str, Any]) -> None:
    """The other workers do more steps instead, as fast as if the slow worker were not there."""
    keys = {"batch": 16, "epochs": 12}
    trial = simulate(strategy, 4, cluster={"worker": PACED, "groups": [SLOW]}, **keys)
    bsp = simulate({"kind": "all_reduce"}, 4, cluster={"worker": PACED, "groups": [SLOW]}, **keys)

    steps_s = [mean(row["step_s"] for row in trial.steps(rank)) for rank in range(4)]
    assert max(steps_s[:3]) < steps_s[3] / 4
    assert run_seconds(trial) < run_seconds(bsp) / 2.5


@both
@pytest.mark.parametrize("workers", [3, 5, 8])
def test_sent_bytes_are_within_the_bounds_of_the_partner_choice(
    simulate: Simulate, strategy: dict[str, Any], workers: int
) -> None:
    """Workers of unequal speed choose other partners; the check of the bytes sent accepts no more than that."""
    trial = simulate(strategy, workers, cluster={"worker": JITTER["worker"], "groups": [{**SLOW, "ranks": [2]}]})

    check_sent_bytes(trial, strategy)


def check_sent_bytes(trial: Any, strategy: dict[str, Any]) -> None:
    """Check that every worker sent bytes within the bounds, as the check of a trial's verdict does."""
    choice = RandomPairByteBounds() if strategy == AD_PSGD else GroupByteBounds(strategy["group_size"])
    workers = trial.plan.workers
    steps = [len(trial.steps(rank)) for rank in range(workers)]
    ranges = choice.bound_sent_bytes(steps, trial.plan.seed, trial.plan.parameters, 4)
    sent = [trial.value(f"worker-{rank}", "node_stop")["payload_bytes_sent"] for rank in range(workers)]
    assert all(least <= count <= most for count, (least, most) in zip(sent, ranges, strict=True))


def test_worker_of_ad_psgd_records_the_averages_during_its_gradient(simulate: Simulate) -> None:
    """Passive workers compute while active workers change their parameters; gradients of active workers are fresh."""
    trial = simulate(AD_PSGD, 4, cluster=JITTER, epochs=6)

    staleness = [[row["staleness"] for row in trial.steps(rank)] for rank in range(4)]
    assert set(staleness[0]) == set(staleness[2]) == {0.0}
    assert 0 < mean(staleness[1]) < 3
    assert 0 < mean(staleness[3]) < 3


def test_step_of_equal_workers_takes_the_predicted_time(simulate: Simulate) -> None:
    """Groups of equal workers are formed at once: compute, 2α for the report, and a ring of the group."""
    links = {"throughput": "200/s", "uplink": "1mbit", "downlink": "1mbit", "delay": "1ms"}
    trial = simulate({"kind": "partial_all_reduce", "group_size": 4}, 8, cluster={"worker": links}, batch=16, epochs=4)

    steps_s = [row["step_s"] for rank in range(1, 8) for row in trial.steps(rank)]
    assert trial.plan.predicted.inapplicable_reason == ""
    assert mean(steps_s) == pytest.approx(trial.plan.predicted.step_s, rel=0.05)


def test_pair_of_ad_psgd_takes_the_predicted_time(simulate: Simulate) -> None:
    """With two workers, one pair shares no link: the active worker waits for 2α + 2Sβ, the passive worker does not."""
    links = {"throughput": "200/s", "uplink": "4mbit", "downlink": "4mbit", "delay": "1ms"}
    trial = simulate(AD_PSGD, 2, cluster={"worker": links}, batch=16, epochs=4)

    for rank, predicted_s in enumerate(trial.plan.predicted.steps_s):
        assert mean(row["step_s"] for row in trial.steps(rank)) == pytest.approx(predicted_s, rel=0.03)


def test_prediction_is_compared_only_if_it_describes_the_step(simulate: Simulate) -> None:
    """Waits for a group, and for links that several pairs use, are not known before a run."""
    slow_links = {"worker": {**PACED, "uplink": "100kbit", "downlink": "100kbit"}}

    def reason(strategy: dict[str, Any], workers: int, cluster: dict[str, Any]) -> str:
        return str(simulate(strategy, workers, cluster=cluster, epochs=1).plan.predicted.inapplicable_reason)

    assert reason(PAIRS, 4, {"worker": PACED}) == ""
    assert "waits for its group" in reason(PAIRS, 3, {"worker": PACED})
    assert "waits for its group" in reason(PAIRS, 4, {"worker": PACED, "groups": [SLOW]})
    assert reason(AD_PSGD, 4, {"worker": PACED}) == ""
    assert "share the links" in reason(AD_PSGD, 4, slow_links)
