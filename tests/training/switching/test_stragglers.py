"""Straggler policies of Sync-Switch: a slow worker delays no other one, and training becomes synchronous again."""

from collections import Counter
from collections.abc import Callable
from statistics import mean
from typing import Any

import numpy as np
import pytest
from replay import replay

from services.learning.optimisers import Sgd
from services.learning.parameter_updater import ParameterUpdater
from services.parameter_server.update_rules import WorkerContribution

Simulate = Callable[..., Any]

WORKERS, SLOW_FROM, SLOW_FOR_S = 4, 10, 0.6
FINAL_UPDATES = 2  # updates with the remaining gradients when the budget is nearly used up
SLOW = {"kind": "slowdown", "at": {"step": SLOW_FROM}, "of": ["worker-0"], "factor": 4, "lasts": f"{SLOW_FOR_S}s"}
PACED = {"worker": {"throughput": "200/s"}}  # 3 samples of a worker's share in 15 ms


def sync_switch(stragglers: str, fraction: float = 1.0) -> dict[str, Any]:
    return {"kind": "sync_switch", "fraction": fraction, "stragglers": stragglers}


def run(simulate: Simulate, strategy: dict[str, Any], *events: dict[str, Any]) -> Any:
    return simulate(strategy, WORKERS, cluster=PACED, events=list(events), epochs=20)


def gradient_counts(trial: Any) -> list[int]:
    """Return the number of gradients in each update, in order."""
    return list(Counter(row["version"] for row in trial.rows("server-0", "shard_updates")).values())


def run_seconds(trial: Any) -> float:
    (start,), (stop,) = (trial.events("coordinator", key) for key in ("run_start", "run_stop"))
    return float(stop["time_ms"] - start["time_ms"]) / 1e3


@pytest.mark.parametrize("policy", ["elastic", "greedy"])
def test_policy_changes_no_update_while_there_are_no_stragglers(simulate: Simulate, policy: str) -> None:
    """Workers of equal speed are never classified as stragglers; only the last updates of the budget may differ."""
    trial, waiting = run(simulate, sync_switch(policy)), run(simulate, sync_switch("keep"))

    updates, expected = (result.rows("server-0", "shard_updates")[: -2 * WORKERS] for result in (trial, waiting))
    assert updates == expected[: len(updates)]
    assert len(updates) >= 0.98 * len(expected)
    assert set(gradient_counts(trial)[:-FINAL_UPDATES]) == {WORKERS}


def test_elastic_policy_excludes_a_straggler_and_includes_it_again(simulate: Simulate) -> None:
    """The late gradients of the straggler are dropped."""
    trial = run(simulate, sync_switch("elastic"), SLOW)

    sizes = gradient_counts(trial)
    assert sizes[0] == sizes[-1 - FINAL_UPDATES] == WORKERS
    assert set(sizes[:-FINAL_UPDATES]) == {WORKERS - 1, WORKERS}
    assert {row["worker"] for row in trial.rows("server-0", "shard_drops")} == {0}


def test_elastic_policy_drops_only_gradients_of_stragglers(simulate: Simulate) -> None:
    """With varying step times any worker may be last; the server waits for it unless it is the straggler."""
    varying = {"worker": PACED["worker"] | {"variation": {"kind": "lognormal", "sigma": 0.05}}}
    slightly_slow = SLOW | {"factor": 1.12, "lasts": "20s"}
    trial = simulate(sync_switch("elastic"), WORKERS, cluster=varying, events=[slightly_slow], epochs=20)

    assert WORKERS - 1 in gradient_counts(trial)[:-FINAL_UPDATES]
    assert {row["worker"] for row in trial.rows("server-0", "shard_drops")} == {0}


def test_greedy_policy_is_the_same_on_all_servers(simulate: Simulate) -> None:
    """The first server decides; from its replies the others know which gradients wait for the other workers."""
    greedy = {"kind": "parameter_server", "servers": 2, "synchrony": {"kind": "greedy"}}
    cluster = {"worker": PACED["worker"] | {"uplink": "1mbit", "downlink": "1mbit"}}
    trial = simulate(greedy, WORKERS, cluster=cluster, events=[SLOW], epochs=20)

    sizes = [
        list(Counter(row["version"] for row in trial.rows(server, "shard_updates")).values())
        for server in ("server-0", "server-1")
    ]
    assert sizes[0].count(1) >= 10
    assert sizes[0] == sizes[1]


def test_greedy_policy_waits_for_no_worker_while_there_is_a_straggler(simulate: Simulate) -> None:
    """No gradient is lost: each is in one update."""
    trial = run(simulate, sync_switch("greedy"), SLOW)

    sizes = gradient_counts(trial)
    assert sizes[0] == sizes[-1 - FINAL_UPDATES] == WORKERS
    assert sizes.count(1) >= 10
    assert not trial.rows("server-0", "shard_drops")


@pytest.mark.parametrize("policy", ["elastic", "greedy"])
def test_policy_takes_less_time_than_waiting_for_the_straggler(simulate: Simulate, policy: str) -> None:
    """For as many samples; without a policy, the slow quarter of the workers delays all while it lasts."""
    waiting, trial = run(simulate, sync_switch("keep"), SLOW), run(simulate, sync_switch(policy), SLOW)

    assert run_seconds(trial) < run_seconds(waiting) - SLOW_FOR_S / 4


@pytest.mark.parametrize("policy", ["elastic", "greedy"])
def test_switch_happens_at_its_share_of_the_samples_and_ends_the_policy(simulate: Simulate, policy: str) -> None:
    """After the switch all workers push asynchronously, including a worker that the policy had excluded."""
    trial = run(simulate, sync_switch(policy, 0.5), {**SLOW, "lasts": "30s"})

    committed = trial.value("coordinator", "switch_committed")
    budget = trial.plan.epochs * trial.plan.train_samples
    assert committed["samples"] == pytest.approx(budget / 2, abs=2 * trial.plan.batch)
    after = [row for row in trial.rows("server-0", "shard_updates") if row["version"] > committed["version"]]
    assert set(Counter(row["version"] for row in after).values()) == {1}
    assert {row["worker"] for row in after} == set(range(WORKERS))


@pytest.mark.parametrize("policy", ["elastic", "greedy"])
@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_replay_from_the_logs_gives_the_same_parameters_under_a_policy(
    simulate: Simulate, policy: str, fraction: float
) -> None:
    """The logs determine which workers were excluded, and which part of the learning rate each update used."""
    trial = run(simulate, sync_switch(policy, fraction), SLOW)

    assert replay(trial.plan, trial.arrivals, trial.progress).tobytes() == trial.final_shards["server-0"]


def test_update_with_fewer_gradients_uses_that_part_of_the_rate(simulate: Simulate) -> None:
    """A sample weighs as much as in synchronous training: with one of four gradients, sgd uses 1/4 of the rate."""
    greedy = {"kind": "parameter_server", "synchrony": {"kind": "greedy"}}
    trial = run(simulate, greedy, SLOW)
    contribution = WorkerContribution(worker=0, samples=3, staleness=0, vector=np.ones(1))

    def moved_by(rate: str, count: int) -> float:
        strategy = trial.plan.strategy.model_copy(update={"rate": rate})
        rule = strategy.server_algorithm().make_update_rule(ParameterUpdater(Sgd(rate=0.1)), np.zeros(1), WORKERS)
        rule.update_shard_params([contribution] * count, 0)
        return float(rule.params[0])

    assert [moved_by("per_sample", count) for count in (1, 3, 4)] == pytest.approx([-0.025, -0.075, -0.1])
    assert [moved_by("as_given", count) for count in (1, 3, 4)] == pytest.approx([-0.1] * 3)
    assert mean(gradient_counts(trial)) < WORKERS
