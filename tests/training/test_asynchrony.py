"""Properties of asynchronous training: staleness, number of updates, and replay of the result from the logs."""

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


def updates_while_all_train(updates: list[Row], steps: int) -> list[Row]:
    """Return the updates before the first worker has made its last one."""
    end = min(row["version"] for row in updates if row["push_step"] == steps - 1)
    return [row for row in updates if row["version"] < end]


@pytest.mark.parametrize("cluster", [{}, SLOW], ids=["equal", "one slow"])
@pytest.mark.parametrize("workers", [2, 3, 8])
def test_mean_staleness_is_n_minus_one_for_any_mix_of_worker_speeds(
    simulate: Callable[..., Any], workers: int, cluster: Row
) -> None:
    """Every update adds one to the staleness of every other worker's gradient, so the mean is conserved."""
    trial = simulate(
        ASP, workers, cluster=cluster, model={"kind": "linear"}, batch=40, epochs=84 if workers > 3 else 150
    )

    updates = updates_while_all_train(trial.rows("server-0", "shard_updates"), trial.plan.steps)

    assert len(updates) >= 100 * workers
    mean = sum(row["staleness"] for row in updates) / len(updates)
    assert mean == pytest.approx(workers - 1, rel=0.01)


def test_gradients_of_the_slow_worker_are_the_most_stale(simulate: Callable[..., Any]) -> None:
    """The mean hides differences: during a step of the slow worker, the three equal workers update four times each."""
    trial = simulate(ASP, 4, cluster=SLOW, model={"kind": "linear"}, batch=40, epochs=60)

    updates = updates_while_all_train(trial.rows("server-0", "shard_updates"), trial.plan.steps)

    by_worker = [[row["staleness"] for row in updates if row["worker"] == rank] for rank in range(4)]
    assert np.mean(by_worker[0]) == pytest.approx(12, rel=0.02)  # three workers, four times each
    assert [float(np.mean(stale)) for stale in by_worker[1:]] == pytest.approx([2.25] * 3, rel=0.02)


def test_workers_and_server_log_the_same_staleness(simulate: Callable[..., Any]) -> None:
    """Two independent records of the same value: a version that one of them counted wrongly would show."""
    trial = simulate(ASP, 3, cluster=SLOW)

    by_server = {(row["worker"], row["push_step"]): row["staleness"] for row in trial.rows("server-0", "shard_updates")}
    by_worker = {(rank, row["step"]): row["staleness"] for rank in range(3) for row in trial.steps(rank)}

    assert by_server.keys() == by_worker.keys()
    assert by_worker == by_server


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda optimiser: optimiser["kind"])
@pytest.mark.parametrize("servers", [1, 3])
def test_one_asynchronous_worker_equals_serial_training_bitwise(
    simulate: Callable[..., Any], optimiser: Row, servers: int
) -> None:
    """One worker has no staleness: only the network and the sharding remain, which must not change any value."""
    alone = simulate({"kind": "none"}, 1, optimiser=optimiser)
    pushed = simulate(ASP | {"servers": servers}, 1, optimiser=optimiser)

    assert pushed.params.tobytes() == alone.params.tobytes()
    assert pushed.value("coordinator", "params_sha256") == alone.value("coordinator", "params_sha256")
    assert {row["staleness"] for row in pushed.steps(0)} == {0}


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda optimiser: optimiser["kind"])
@pytest.mark.parametrize(("servers", "batch"), [(1, 12), (2, 12), (3, 2)])
def test_replay_from_the_logs_gives_the_same_parameters(
    simulate: Callable[..., Any], optimiser: Row, servers: int, batch: int
) -> None:
    """An asynchronous result depends on the order of arrival: the log must have all that it depends on."""
    slow_links = {"worker": {"throughput": "1000/s", "uplink": "1mbit", "downlink": "2mbit"}, **SLOW}
    workers = 3 if batch > 3 else 2
    trial = simulate(ASP | {"servers": servers}, workers, cluster=slow_links, optimiser=optimiser, batch=batch)

    params = replay(trial.plan, trial.arrivals, trial.progress)

    assert params.tobytes() == trial.params.tobytes()
    assert hashlib.sha256(params.tobytes()).hexdigest() == trial.value("coordinator", "params_sha256")


def test_fast_workers_process_more_of_the_budget_than_slow_workers(simulate: Callable[..., Any]) -> None:
    """Workers do not wait for each other; with equal shares of the budget all would wait for the slowest worker."""
    trial = simulate(ASP, 3, cluster=SLOW, epochs=40)

    steps = [len(trial.steps(rank)) for rank in range(3)]
    ends = [row["start_s"] + row["step_s"] for rank in range(3) for row in trial.steps(rank)[-1:]]
    assert steps[1] / steps[0] == pytest.approx(4, rel=0.05)
    assert max(ends) - min(ends) <= 1.01 * trial.steps(0)[-1]["step_s"]


def test_version_equals_the_number_of_received_pushes(simulate: Callable[..., Any]) -> None:
    """No push is lost and none is applied twice."""
    trial = simulate(ASP | {"servers": 2}, 3, cluster=SLOW)

    for server in ("server-0", "server-1"):
        updates = trial.rows(server, "shard_updates")
        pushes = sum(len(trial.steps(rank)) for rank in range(3))
        assert [row["version"] for row in updates] == list(range(1, pushes + 1))
        assert len({(row["worker"], row["push_step"]) for row in updates}) == len(updates)


def test_asynchronous_workers_stop_soon_after_the_target(simulate: Callable[..., Any]) -> None:
    """Workers that do not wait for each other still stop before the end of the budget when the target is reached."""
    trial = simulate(ASP, 3, cluster=SLOW, epochs=200, target={"metric": "r2", "at_least": 0.3})

    (stop,) = trial.events("coordinator", "run_stop")
    assert (stop["metadata"]["status"], stop["metadata"]["reason"]) == ("success", "target reached")
    assert all(len(trial.steps(rank)) < trial.plan.steps for rank in range(3))
    assert stop["metadata"]["samples_count"] == sum(row["samples"] for rank in range(3) for row in trial.steps(rank))
