"""Sync-Switch's straggler policies: who is slow for a while holds nobody up, and lockstep comes back."""

from collections import Counter
from collections.abc import Callable
from statistics import mean
from typing import Any

import numpy as np
import pytest
from replay import replay

from services.learning.optimisers import Sgd
from services.parameter_server.update_rules import WorkerContribution

Rehearse = Callable[..., Any]

WORKERS, SLOW_FROM, SLOW_FOR_S = 4, 10, 0.6
ENDS = 2  # updates of what is left when the budget is all but used
SLOW = {"kind": "slowdown", "at": {"step": SLOW_FROM}, "of": ["worker-0"], "factor": 4, "lasts": f"{SLOW_FOR_S}s"}
PACED = {"worker": {"throughput": "200/s"}}  # 3 samples of a worker's share in 15 ms


def sync_switch(stragglers: str, fraction: float = 1.0) -> dict[str, Any]:
    return {"kind": "sync_switch", "fraction": fraction, "stragglers": stragglers}


def run(rehearse: Rehearse, strategy: dict[str, Any], *events: dict[str, Any]) -> Any:
    return rehearse(strategy, WORKERS, cluster=PACED, events=list(events), epochs=20)


def gradients(done: Any) -> list[int]:
    """How many are in each update, in their order."""
    return list(Counter(row["version"] for row in done.rows("server-0", "shard_updates")).values())


def seconds(done: Any) -> float:
    (start,), (stop,) = (done.events("coordinator", key) for key in ("run_start", "run_stop"))
    return float(stop["time_ms"] - start["time_ms"]) / 1e3


@pytest.mark.parametrize("policy", ["elastic", "greedy"])
def test_without_stragglers_lockstep_is_lockstep(rehearse: Rehearse, policy: str) -> None:
    """Workers of one speed are never told apart by the little that they differ; only who ends the budget differs."""
    done, kept = run(rehearse, sync_switch(policy)), run(rehearse, sync_switch("keep"))

    ours, theirs = (each.rows("server-0", "shard_updates")[: -2 * WORKERS] for each in (done, kept))
    assert ours == theirs[: len(ours)]
    assert len(ours) >= 0.98 * len(theirs)
    assert set(gradients(done)[:-ENDS]) == {WORKERS}


def test_elastic_lockstep_goes_on_without_a_straggler_and_takes_it_back(rehearse: Rehearse) -> None:
    """What it is late with is dropped."""
    done = run(rehearse, sync_switch("elastic"), SLOW)

    sizes = gradients(done)
    assert sizes[0] == sizes[-1 - ENDS] == WORKERS
    assert set(sizes[:-ENDS]) == {WORKERS - 1, WORKERS}
    assert {row["worker"] for row in done.rows("server-0", "shard_drops")} == {0}


def test_elastic_lockstep_drops_nothing_of_workers_that_are_no_stragglers(rehearse: Rehearse) -> None:
    """Of workers whose steps vary, any may be the last while somebody counts as a straggler, and is waited for."""
    varying = {"worker": PACED["worker"] | {"variation": {"kind": "lognormal", "sigma": 0.05}}}
    mild = SLOW | {"factor": 1.12, "lasts": "20s"}
    done = rehearse(sync_switch("elastic"), WORKERS, cluster=varying, events=[mild], epochs=20)

    assert WORKERS - 1 in gradients(done)[:-ENDS]
    assert {row["worker"] for row in done.rows("server-0", "shard_drops")} == {0}


def test_greedy_lockstep_comes_apart_on_all_servers_alike(rehearse: Rehearse) -> None:
    """The first decides: by what it answers, another knows which gradients wait for others."""
    greedy = {"kind": "parameter_server", "servers": 2, "synchrony": {"kind": "greedy"}}
    cluster = {"worker": PACED["worker"] | {"uplink": "1mbit", "downlink": "1mbit"}}
    done = rehearse(greedy, WORKERS, cluster=cluster, events=[SLOW], epochs=20)

    sizes = [
        list(Counter(row["version"] for row in done.rows(server, "shard_updates")).values())
        for server in ("server-0", "server-1")
    ]
    assert sizes[0].count(1) >= 10
    assert sizes[0] == sizes[1]


def test_greedy_lockstep_waits_for_nobody_while_there_is_a_straggler(rehearse: Rehearse) -> None:
    """And nothing is lost: every gradient is in one update."""
    done = run(rehearse, sync_switch("greedy"), SLOW)

    sizes = gradients(done)
    assert sizes[0] == sizes[-1 - ENDS] == WORKERS
    assert sizes.count(1) >= 10
    assert not done.rows("server-0", "shard_drops")


@pytest.mark.parametrize("policy", ["elastic", "greedy"])
def test_a_policy_takes_less_time_than_to_wait(rehearse: Rehearse, policy: str) -> None:
    """For as many samples; a slow quarter of the workers would hold up all while it lasts."""
    kept, done = run(rehearse, sync_switch("keep"), SLOW), run(rehearse, sync_switch(policy), SLOW)

    assert seconds(done) < seconds(kept) - SLOW_FOR_S / 4


@pytest.mark.parametrize("policy", ["elastic", "greedy"])
def test_the_switch_comes_at_its_share_of_the_samples_and_ends_the_policy(rehearse: Rehearse, policy: str) -> None:
    """After it everybody pushes as they please, a worker that was left out too."""
    done = run(rehearse, sync_switch(policy, 0.5), {**SLOW, "lasts": "30s"})

    committed = done.value("coordinator", "switch_committed")
    budget = done.plan.epochs * done.plan.train_samples
    assert committed["samples"] == pytest.approx(budget / 2, abs=2 * done.plan.batch)
    after = [row for row in done.rows("server-0", "shard_updates") if row["version"] > committed["version"]]
    assert set(Counter(row["version"] for row in after).values()) == {1}
    assert {row["worker"] for row in after} == set(range(WORKERS))


@pytest.mark.parametrize("policy", ["elastic", "greedy"])
@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_the_order_of_arrival_replays_under_a_policy(rehearse: Rehearse, policy: str, fraction: float) -> None:
    """Whoever is left out, and whatever part of the rate an update uses, follows from the log."""
    done = run(rehearse, sync_switch(policy, fraction), SLOW)

    assert replay(done.plan, done.arrivals, done.course).tobytes() == done.finals["server-0"]


def test_an_update_of_fewer_gradients_uses_its_part_of_the_rate(rehearse: Rehearse) -> None:
    """A sample counts as much as in lockstep: with sgd and one of four, a quarter; `as_given` is the whole rate."""
    given = {"kind": "parameter_server", "synchrony": {"kind": "greedy"}}
    done = run(rehearse, given, SLOW)
    one = WorkerContribution(worker=0, samples=3, staleness=0, vector=np.ones(1))

    def moved(rate: str, count: int) -> float:
        strategy = done.plan.strategy.model_copy(update={"rate": rate})
        rule = strategy.server_algorithm().make_update_rule(Sgd(rate=0.1), np.zeros(1), WORKERS)
        rule.update([one] * count)
        return float(rule.params[0])

    assert [moved("per_sample", count) for count in (1, 3, 4)] == pytest.approx([-0.025, -0.075, -0.1])
    assert [moved("as_given", count) for count in (1, 3, 4)] == pytest.approx([-0.1] * 3)
    assert mean(gradients(done)) < WORKERS
