"""Laws of asynchronous training: how stale, how much, and that the order of arrival explains the result."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from replay import replay

ASP = {"kind": "parameter_server", "synchrony": {"kind": "asp"}}
SLOW = {"groups": [{"name": "slow", "ranks": [0], "throughput": "250/s"}]}  # four times slower than the others
OPTIMISERS = [{"kind": "sgd", "rate": 0.05}, {"kind": "momentum", "rate": 0.05}, {"kind": "adam", "rate": 0.01}]

Row = dict[str, Any]


def while_all_work(updates: list[Row], steps: int) -> list[Row]:
    """The updates before the first worker made its last."""
    end = min(row["version"] for row in updates if row["push_step"] == steps - 1)
    return [row for row in updates if row["version"] < end]


@pytest.mark.parametrize("cluster", [{}, SLOW], ids=["equal", "one slow"])
@pytest.mark.parametrize("workers", [2, 3, 8])
def test_mean_staleness_is_n_minus_one_however_fast_each_worker_is(
    rehearse: Callable[..., Any], workers: int, cluster: Row
) -> None:
    """Every update counts once in the staleness of every other worker's gradient: the mean is conserved."""
    done = rehearse(
        ASP, workers, cluster=cluster, model={"kind": "linear"}, batch=40, epochs=84 if workers > 3 else 150
    )

    updates = while_all_work(done.rows("server-0", "shard_updates"), done.plan.steps)

    assert len(updates) >= 100 * workers
    mean = sum(row["staleness"] for row in updates) / len(updates)
    assert mean == pytest.approx(workers - 1, rel=0.01)


def test_a_slow_workers_gradients_are_the_stale_ones(rehearse: Callable[..., Any]) -> None:
    """The mean hides who pays: with three equal workers a slow one sees all their updates go by."""
    done = rehearse(ASP, 4, cluster=SLOW, model={"kind": "linear"}, batch=40, epochs=60)

    updates = while_all_work(done.rows("server-0", "shard_updates"), done.plan.steps)

    by_worker = [[row["staleness"] for row in updates if row["worker"] == rank] for rank in range(4)]
    assert np.mean(by_worker[0]) == pytest.approx(12, rel=0.02)  # three workers, four times each
    assert [float(np.mean(stale)) for stale in by_worker[1:]] == pytest.approx([2.25] * 3, rel=0.02)


def test_workers_and_server_tell_the_same_staleness(rehearse: Callable[..., Any]) -> None:
    """The same fact from both ends: a version that one of them counted wrongly would show."""
    done = rehearse(ASP, 3, cluster=SLOW)

    by_server = {(row["worker"], row["push_step"]): row["staleness"] for row in done.rows("server-0", "shard_updates")}
    by_worker = {(rank, row["step"]): row["staleness"] for rank in range(3) for row in done.steps(rank)}

    assert by_server.keys() == by_worker.keys()
    assert by_worker == by_server


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda optimiser: optimiser["kind"])
@pytest.mark.parametrize("servers", [1, 3])
def test_one_asynchronous_worker_is_serial_training_to_the_last_bit(
    rehearse: Callable[..., Any], optimiser: Row, servers: int
) -> None:
    """Without others nothing is stale: what remains are the network and the ranges, which may not touch a number."""
    alone = rehearse({"kind": "none"}, 1, optimiser=optimiser)
    pushed = rehearse(ASP | {"servers": servers}, 1, optimiser=optimiser)

    assert pushed.params.tobytes() == alone.params.tobytes()
    assert pushed.value("coordinator", "params_sha256") == alone.value("coordinator", "params_sha256")
    assert {row["staleness"] for row in pushed.steps(0)} == {0}


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda optimiser: optimiser["kind"])
@pytest.mark.parametrize(("servers", "batch"), [(1, 12), (2, 12), (3, 2)])
def test_the_order_of_arrival_replays_to_the_same_parameters(
    rehearse: Callable[..., Any], optimiser: Row, servers: int, batch: int
) -> None:
    """An asynchronous result is explained by who came when: the log must hold all that it depends on."""
    slow_links = {"worker": {"throughput": "1000/s", "uplink": "1mbit", "downlink": "2mbit"}, **SLOW}
    workers = 3 if batch > 3 else 2
    done = rehearse(ASP | {"servers": servers}, workers, cluster=slow_links, optimiser=optimiser, batch=batch)

    params = replay(done.plan, done.arrivals, done.course)

    assert params.tobytes() == done.params.tobytes()
    assert hashlib.sha256(params.tobytes()).hexdigest() == done.value("coordinator", "params_sha256")


def test_a_fast_worker_takes_over_what_a_slow_one_leaves(rehearse: Callable[..., Any]) -> None:
    """Nobody waits for anybody, so a budget that was dealt out in equal parts would make all wait for the slowest."""
    done = rehearse(ASP, 3, cluster=SLOW, epochs=40)

    steps = [len(done.steps(rank)) for rank in range(3)]
    ends = [row["start_s"] + row["step_s"] for rank in range(3) for row in done.steps(rank)[-1:]]
    assert steps[1] / steps[0] == pytest.approx(4, rel=0.05)
    assert max(ends) - min(ends) <= 1.01 * done.steps(0)[-1]["step_s"]


def test_a_version_counts_the_pushes_received(rehearse: Callable[..., Any]) -> None:
    """No push is lost and none is applied twice."""
    done = rehearse(ASP | {"servers": 2}, 3, cluster=SLOW)

    for server in ("server-0", "server-1"):
        updates = done.rows(server, "shard_updates")
        pushes = sum(len(done.steps(rank)) for rank in range(3))
        assert [row["version"] for row in updates] == list(range(1, pushes + 1))
        assert len({(row["worker"], row["push_step"]) for row in updates}) == len(updates)


def test_asynchronous_workers_stop_soon_after_the_target(rehearse: Callable[..., Any]) -> None:
    """Nobody waits for anybody, but nobody trains on when the result is known."""
    done = rehearse(ASP, 3, cluster=SLOW, epochs=200, target={"metric": "r2", "at_least": 0.3})

    (stop,) = done.events("coordinator", "run_stop")
    assert (stop["metadata"]["status"], stop["metadata"]["reason"]) == ("success", "target reached")
    assert all(len(done.steps(rank)) < done.plan.steps for rank in range(3))
    assert stop["metadata"]["samples_count"] == sum(row["samples"] for rank in range(3) for row in done.steps(rank))
