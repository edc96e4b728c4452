"""Evaluations more often than once per epoch: when they take place, and that training does not depend on them."""

from collections.abc import Callable
from typing import Any

import pytest

from services.plan import COORDINATOR

Simulate = Callable[..., Any]

RING = {"kind": "all_reduce"}
BSP = {"kind": "parameter_server"}
ASP = {"kind": "parameter_server", "synchrony": {"kind": "asp"}}
LINKS = {"worker": {"throughput": "1000/s", "uplink": "1mbit", "downlink": "1mbit"}}
SLOW = LINKS | {"groups": [{"name": "slow", "ranks": [2], "speed": 0.4}]}
WORK = {"epochs": 3, "batch": 8}  # 80 training samples: ten steps per epoch
EVERY = 24
STRATEGIES = {"ring": RING, "bsp": BSP, "asp": ASP}


def plateau(loss: str = "validation", **keys: Any) -> dict[str, Any]:
    return {"kind": "plateau", "window": 2, "min_points": 2, "threshold": 100.0, "loss": loss, **keys}


def switch(before: dict[str, Any], after: dict[str, Any], rule: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "strategy_switch", "before": before, "after": after, "when": rule}


def evaluated_samples(trial: Any) -> list[int]:
    return [event["metadata"]["samples_count"] for event in trial.events(COORDINATOR, "eval_accuracy")]


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("strategy", [RING, BSP], ids=["ring", "bsp"])
def test_synchronous_evaluations_follow_the_same_samples_for_any_number_of_workers(
    simulate: Simulate, strategy: dict[str, Any], workers: int
) -> None:
    """Times to a target are comparable only if all systems are evaluated at the same progress."""
    trial = simulate(strategy, workers, evaluate_every=EVERY, **WORK)

    assert evaluated_samples(trial) == [24, 48, 72, 96, 120, 144, 168, 192, 216, 240]


def test_evaluations_are_rounded_up_to_whole_steps_and_the_end_of_the_budget_is_evaluated(simulate: Simulate) -> None:
    """Steps of 12 samples and an epoch of 80: the last step of an epoch has 8."""
    trial = simulate(RING, 2, epochs=2, batch=12, evaluate_every=30)

    assert evaluated_samples(trial) == [36, 60, 92, 128, 152, 160]
    assert [event["metadata"]["epoch_num"] for event in trial.events(COORDINATOR, "eval_accuracy")] == [
        1,
        1,
        2,
        2,
        2,
        2,
    ]


@pytest.mark.parametrize("label", STRATEGIES)
def test_an_interval_of_one_epoch_gives_the_log_of_a_scenario_without_the_key(simulate: Simulate, label: str) -> None:
    """The default must not change earlier results."""
    default, explicit = (simulate(STRATEGIES[label], 3, **WORK, **keys) for keys in ({}, {"evaluate_every": 80}))

    lines = [[line for line in trial.lines[COORDINATOR] if "cpu_seconds" not in line] for trial in (default, explicit)]
    assert lines[0] == lines[1]
    assert "epoch_stop" in "".join(lines[0])


@pytest.mark.parametrize("strategy", [RING, BSP], ids=["ring", "bsp"])
def test_evaluations_do_not_change_the_parameters_of_synchronous_training(
    simulate: Simulate, strategy: dict[str, Any]
) -> None:
    """An evaluation only reads the parameters."""
    seldom, often = (simulate(strategy, 3, **WORK, **keys) for keys in ({}, {"evaluate_every": EVERY}))

    assert often.params.tobytes() == seldom.params.tobytes()


def test_evaluations_take_no_virtual_time(simulate: Simulate) -> None:
    """Virtual time has no cost of evaluations, so the end of synchronous training does not move."""
    seldom, often = (simulate(RING, 3, cluster=LINKS, **WORK, **keys) for keys in ({}, {"evaluate_every": EVERY}))

    (expected,), (actual,) = (trial.events(COORDINATOR, "run_stop") for trial in (seldom, often))
    assert actual["time_ms"] == pytest.approx(expected["time_ms"], rel=1e-9)


@pytest.mark.parametrize("label", STRATEGIES)
def test_training_stops_at_the_first_evaluation_that_reaches_the_target(simulate: Simulate, label: str) -> None:
    """The time to a target is then known to within one interval instead of one epoch."""
    work = {"epochs": 30, "batch": 8, "target": {"metric": "r2", "at_least": 0.3}, "cluster": LINKS}
    trial = simulate(STRATEGIES[label], 2, evaluate_every=EVERY, **work)

    values = [event["value"] for event in trial.events(COORDINATOR, "eval_accuracy")]
    first = next(number for number, value in enumerate(values) if value >= 0.3)
    (stop,) = trial.events(COORDINATOR, "run_stop")
    assert stop["metadata"]["reason"] == "target reached"
    if trial.plan.is_synchronous:
        assert first == len(values) - 1
        assert stop["metadata"]["samples_count"] % 80 != 0, "training stopped within an epoch"
    assert stop["metadata"]["samples_count"] <= evaluated_samples(trial)[first] + 2 * 8


def test_asynchronous_evaluations_follow_the_steps_of_the_evaluation_worker(simulate: Simulate) -> None:
    """Its parameters are evaluated; the samples of all workers at that moment are logged."""
    trial = simulate(ASP, 3, cluster=SLOW, evaluate_every=EVERY, **WORK)

    *evaluations, final = trial.events(COORDINATOR, "eval_metrics")
    assert [event["metadata"]["step"] for event in evaluations] == [3 * (n + 1) for n in range(len(evaluations))]
    assert len(evaluations) > 3
    assert final["metadata"]["samples_count"] == 240
    assert evaluated_samples(trial) == sorted(evaluated_samples(trial))


@pytest.mark.parametrize("label", STRATEGIES)
def test_log_has_one_block_of_samples_before_every_evaluation(simulate: Simulate, label: str) -> None:
    """As MLPerf's benchmarks that are evaluated after a number of samples, such as BERT: no epochs, but blocks."""
    trial = simulate(STRATEGIES[label], 3, cluster=SLOW, evaluate_every=EVERY, **WORK)

    starts, stops = (
        [event["metadata"] for event in trial.events(COORDINATOR, key)] for key in ("block_start", "block_stop")
    )
    assert not trial.events(COORDINATOR, "epoch_start")
    assert [block["samples_count"] for block in starts] == [0, *(block["samples_count"] for block in stops[:-1])]
    assert [block["first_epoch_num"] for block in starts] == [block["first_epoch_num"] for block in stops]
    assert len(starts) > 3


@pytest.mark.parametrize("label", ["ring", "asp"])
def test_training_loss_is_the_mean_since_the_previous_evaluation(simulate: Simulate, label: str) -> None:
    """Every computed sample counts once, except those after the last report of an asynchronous worker."""
    trial = simulate(STRATEGIES[label], 2, cluster=LINKS, evaluate_every=EVERY, **WORK)

    losses = [event["value"] for event in trial.events(COORDINATOR, "train_loss")]
    steps = [row for rank in range(2) for row in trial.steps(rank)]
    rows = [[row for row in steps if row["step"] // 3 == point] for point in range(len(losses))]
    means = [sum(row["loss"] * row["samples"] for row in some) / sum(row["samples"] for row in some) for some in rows]
    assert losses == pytest.approx(means)
    assert len(losses) >= 9


def test_a_plateau_rule_counts_evaluations_and_switches_within_an_epoch(simulate: Simulate) -> None:
    """An evaluation point of a switch rule is an evaluation: `force_at: 3` is after 72 samples, not after 3 epochs."""
    trial = simulate(switch(RING, ASP, plateau(threshold=1e-9, force_at=3)), 3, evaluate_every=EVERY, **WORK)

    (committed,) = trial.events(COORDINATOR, "switch_committed")
    assert committed["value"]["samples"] == 72
    assert committed["value"]["step"] == 9
    rules = trial.events(COORDINATOR, "switch_rule")
    assert [event["metadata"]["epoch_num"] for event in rules[:4]] == [1, 1, 1, 2]


@pytest.mark.parametrize("loss", ["validation", "train"])
@pytest.mark.parametrize(("before", "after"), [(RING, ASP), (ASP, RING), (BSP, ASP), (ASP, BSP)])
def test_a_switch_keeps_every_sample_with_frequent_evaluations(
    simulate: Simulate, before: dict[str, Any], after: dict[str, Any], loss: str
) -> None:
    """The switch falls between two evaluations of some workers; budget and evaluations must go on."""
    trial = simulate(
        switch(before, after, plateau(loss)), 3, cluster=SLOW, evaluate_every=EVERY, **WORK | {"epochs": 6}
    )

    (committed,) = trial.events(COORDINATOR, "switch_committed")
    (stop,) = trial.events(COORDINATOR, "run_stop")
    assert 0 < committed["value"]["samples"] < 80, "the switch came within the first epoch"
    assert 480 <= stop["metadata"]["samples_count"] <= 480 + 3 * 8
    assert evaluated_samples(trial)[-1] == stop["metadata"]["samples_count"]


def test_an_epoch_of_a_switch_rule_stays_an_epoch(simulate: Simulate) -> None:
    """`at: {epoch: 1}` names a pass over the data, however often quality is evaluated."""
    trial = simulate(switch(RING, ASP, {"kind": "at", "epoch": 1}), 3, evaluate_every=EVERY, **WORK)

    (committed,) = trial.events(COORDINATOR, "switch_committed")
    assert committed["value"]["samples"] == 80


@pytest.mark.parametrize("period", [1, 3])
def test_local_sgd_averages_its_replicas_before_every_evaluation(simulate: Simulate, period: int) -> None:
    """Otherwise the evaluated parameters would be those of one worker."""
    strategy = {"kind": "local_sgd", "period": period}
    trial = simulate(strategy, 3, hash_every_step=True, evaluate_every=EVERY, batch=8, epochs=3)

    evaluated = [event["metadata"]["step"] for event in trial.events(COORDINATOR, "eval_metrics")]
    hashes = [
        {e["metadata"]["step"]: e["value"] for e in trial.events(f"worker-{rank}", "node_hash")} for rank in range(3)
    ]
    assert evaluated == list(range(3, 31, 3))
    for step in evaluated:
        assert len({by_step[step] for by_step in hashes}) == 1


def test_a_diverged_run_names_the_evaluation(simulate: Simulate) -> None:
    """The number in the reason counts evaluations, so the reason must not call it an epoch."""
    trial = simulate(RING, 2, evaluate_every=EVERY, optimiser={"kind": "sgd", "rate": 1e30}, **WORK)

    (stop,) = trial.events(COORDINATOR, "run_stop")
    assert " loss of evaluation " in stop["metadata"]["reason"]
