"""Trials in virtual time that lose workers before, during and after a strategy switch, and go on without them.

Virtual time reports a deadlock as an error, so a trial can't hang.
"""

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from recovering_trial import RecoveringTrial

from services.node.simulate import InProcessCoordinatorClient
from services.plan import COORDINATOR
from services.runtime.run_log import UPDATE_COLUMNS

RECOVERY = {"on_failure": "continue", "heartbeat_timeout": "100ms"}
SWITCH_STEP = 20  # of 45
RING = {"kind": "all_reduce"}
AFTER: dict[str, dict[str, Any]] = {
    "asp": {"synchrony": {"kind": "asp"}},
    "asp on two servers": {"synchrony": {"kind": "asp"}, "servers": 2},
    "ssp": {"synchrony": {"kind": "ssp", "staleness": 2}},
    "gba": {"synchrony": {"kind": "gba", "gather": 2}},
}
AT_STEP = {"kind": "at", "step": SWITCH_STEP}
# Fires at the fourth evaluation, which is before the step of `AT_STEP`, too.
AT_PLATEAU = {"kind": "plateau", "threshold": 1e-9, "force_at": 4}
# 12 kB with the momentum, which pass the links in about 10 ms: a node can be lost in the transfer.
LARGE_MODEL = {"kind": "mlp", "hidden": [200], "activation": "tanh"}
# Moments as fractions of the switch; 0 is when the first node stops, 1 is the commit.
MOMENTS = (-60.0, -2.0, -0.2, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98, 1.02, 1.2, 3.0, 20.0)


def switching(after: str, when: dict[str, Any] = AT_STEP) -> dict[str, Any]:
    """Return a strategy that begins with a ring."""
    return {
        "kind": "strategy_switch",
        "before": RING,
        "after": {"kind": "parameter_server", **AFTER[after]},
        "when": when,
    }


def run(strategy: dict[str, Any], events: list[dict[str, Any]], folder: Path, **workload: Any) -> RecoveringTrial:
    return RecoveringTrial.run(strategy, RECOVERY, events, folder, model=LARGE_MODEL, **workload)


RunUndisturbed = Callable[[str, str], RecoveringTrial]


@pytest.fixture(scope="module")
def run_undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunUndisturbed:
    """Return a function that gives the trial without losses, by second strategy and kind of rule."""
    rules = {rule["kind"]: rule for rule in (AT_STEP, AT_PLATEAU)}
    return cache(lambda after, rule: run(switching(after, rules[rule]), [], tmp_path_factory.mktemp("undisturbed")))


def kill(worker: str, seconds: float) -> dict[str, Any]:
    return {"kind": "kill", "of": [worker], "at": {"time": f"{1e3 * seconds:.4f}ms"}}


def switch_period_s(trial: RecoveringTrial) -> tuple[float, float]:
    """Return begin and end of the last switch, in virtual seconds since the start of the run."""
    (start,), (commit,) = (trial.events(COORDINATOR, key) for key in ("run_start", "switch_committed"))
    end_s = float(commit["time_ms"] - start["time_ms"]) / 1e3
    return end_s - float(commit["value"]["seconds"]), end_s


def moment_s(trial: RecoveringTrial, fraction: float) -> float:
    """Return the moment of a fraction of the switch."""
    begin_s, end_s = switch_period_s(trial)
    return begin_s + fraction * (end_s - begin_s)


def pushes(trial: RecoveringTrial, server: str) -> list[dict[str, Any]]:
    """Return the pushes that a server has used for updates."""
    batches = (event["value"]["rows"] for event in trial.events(server, "shard_updates"))
    return [dict(zip(UPDATE_COLUMNS, row, strict=True)) for rows in batches for row in rows]


def assert_continued(trial: RecoveringTrial) -> None:
    """Check that the trial has switched once and used its budget, and that no push is in two updates."""
    assert trial.stop_reason == "budget used"
    assert trial.budget <= trial.samples <= trial.budget + trial.plan.batch
    (commit,) = trial.events(COORDINATOR, "switch_committed")
    step = commit["metadata"]["step"]
    assert commit["value"]["samples"] == trial.plan.data_order.count_samples_before(step)
    for server in trial.plan.shard_owners:
        used = pushes(trial, server)
        assert max(Counter((push["worker"], push["push_step"]) for push in used).values()) == 1
        assert min(push["push_step"] for push in used) == step
    first_server = pushes(trial, trial.plan.shard_owners[0])
    assert trial.samples == commit["value"]["samples"] + sum(push["samples"] for push in first_server)
    if trial.lost_nodes:
        workers = {worker.name for worker in trial.plan.node_plans_of_role("worker")}
        assert set(trial.epochs[-1]["workers"]) == workers - set(trial.lost_nodes)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("lost", ["worker-0", "worker-2"])
@pytest.mark.parametrize("when", [AT_STEP, AT_PLATEAU], ids=["at step", "plateau"])
def test_training_goes_on_after_a_loss_at_each_moment_of_a_switch(
    run_undisturbed: RunUndisturbed, when: dict[str, Any], lost: str, moment: float, tmp_path: Path
) -> None:
    """Worker 0 is the evaluation worker, and sends a shard to a server; the switch can end without worker 2."""
    undisturbed = run_undisturbed("asp on two servers", when["kind"])

    trial = run(switching("asp on two servers", when), [kill(lost, moment_s(undisturbed, moment))], tmp_path)

    assert_continued(trial)
    assert trial.lost_nodes == [lost]
    (epoch,), (commit,) = (trial.events(COORDINATOR, key) for key in ("membership_epoch", "switch_committed"))
    was_lost_before = epoch["time_ms"] < commit["time_ms"]
    assert was_lost_before or moment >= (1 if lost == "worker-0" else 0)
    assert len(trial.events("worker-1", "recovery")) == was_lost_before  # after the switch, nothing is broken off


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("seed", range(12))
def test_training_goes_on_after_several_losses_around_a_switch(
    run_undisturbed: RunUndisturbed, after: str, seed: int, tmp_path: Path
) -> None:
    """Up to three workers are killed or frozen at random moments, of which one is in or near the switch."""
    random, when = Random(f"{after} {seed}"), [AT_STEP, AT_PLATEAU][seed % 2]
    undisturbed = run_undisturbed(after, when["kind"])
    workers, events = random.sample([f"worker-{rank}" for rank in range(4)], random.randint(1, 3)), []
    first_s = moment_s(undisturbed, random.uniform(-0.5, 1.5))
    for number, worker in enumerate(workers):
        loss_s = first_s + number * random.choice([0.0, 0.002, 0.1, 0.125, 0.13, random.uniform(-0.2, 0.4)])
        event = kill(worker, loss_s)
        is_frozen = random.random() < 0.3
        events.append({**event, "kind": "stop", "lasts": f"{random.uniform(1, 400):.1f}ms"} if is_frozen else event)

    assert_continued(run(switching(after, when), events, tmp_path))


def test_losses_before_a_switch_change_the_result_by_rounding_only(tmp_path: Path) -> None:
    """The samples of each step stay, so the servers begin with the same model as without a loss."""
    strategy = switching("asp on two servers")
    undisturbed = run(strategy, [], tmp_path / "0", precision="fp64")
    begin_s, end_s = switch_period_s(undisturbed)

    trial = run(
        strategy,
        [kill("worker-0", begin_s / 2), kill("worker-3", (begin_s + end_s) / 2)],
        tmp_path / "1",
        precision="fp64",
    )

    losses, expected = (
        [event["value"]["loss"] for event in each.events(COORDINATOR, "eval_metrics")[:4]]
        for each in (trial, undisturbed)
    )
    assert losses == pytest.approx(expected, rel=1e-12)
    assert trial.epochs[-1]["workers"] == ["worker-1", "worker-2"]


def test_the_remaining_workers_have_the_learning_rate_of_their_number(tmp_path: Path) -> None:
    """With `rate: keep_per_sample`, two workers with half of a batch each use half of the rate, not a quarter.

    Both trials compute the same samples. The order of their pushes differs, which hardly matters at so small a rate.
    """
    strategy = {**switching("asp"), "optimiser_state": "reset"}
    losses = [kill("worker-2", 0.1), kill("worker-3", 0.1)]
    workload = {"precision": "fp64", "optimiser": {"kind": "sgd", "rate": 2e-4}}

    trial = run(strategy, losses, tmp_path / "0", **workload)
    two = RecoveringTrial.run(strategy, RECOVERY, [], tmp_path / "1", 2, model=LARGE_MODEL, **workload)

    assert trial.epochs[-1]["workers"] == ["worker-0", "worker-1"]
    assert trial.final_loss == pytest.approx(two.final_loss, rel=1e-4)


def test_a_training_without_a_switch_ends_although_the_last_worker_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers wait for a switch until all workers have left or are lost."""
    strategy = switching("asp", {"kind": "never"})
    undisturbed = run(strategy, [], tmp_path / "0")
    leave = InProcessCoordinatorClient.leave

    async def leave_late(client: InProcessCoordinatorClient, report: Any) -> None:
        if client.node_name == "worker-1":
            await client.runtime.clock.sleep_until(client.runtime.clock.now() + 0.4)
        await leave(client, report)

    monkeypatch.setattr(InProcessCoordinatorClient, "leave", leave_late)

    trial = run(strategy, [kill("worker-1", undisturbed.seconds + 0.2)], tmp_path / "1")

    assert trial.lost_nodes == ["worker-1"]
    assert trial.samples == trial.budget
