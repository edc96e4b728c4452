"""Partitions of the data network in virtual time: a short one is survived, and a long one ends the trial."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ensayo.fault_search.strategy_table import STRATEGY_TABLE
from services.schema.errors import NetworkError, first_error_in_group

Document = dict[str, Any]
Simulate = Callable[..., Any]

WORKERS, APART = 4, ["worker-2", "worker-3"]
DISTRIBUTED = {name: strategy for name, strategy in STRATEGY_TABLE.items() if strategy["kind"] != "none"}
# Strategies under which workers 0 and 1, which still reach the server or each other, train during a partition.
GOES_ON = {
    "ssp": {"kind": "parameter_server", "synchrony": {"kind": "ssp", "staleness": 5000}},
    "asp": {"kind": "parameter_server", "synchrony": {"kind": "asp"}},
}
SGD = {"kind": "sgd", "rate": 0.05}
MANY_SAMPLES = {"kind": "synthetic_regression", "samples": 20_000, "features": 4, "outputs": 2}
POLICIES: dict[str, tuple[Document, Document]] = {
    "bsp, abort": ({"kind": "parameter_server"}, {"on_failure": "abort"}),
    "bsp, continue": ({"kind": "parameter_server"}, {"on_failure": "continue"}),
    "bsp, rejoin": ({"kind": "parameter_server"}, {"on_failure": "rejoin"}),
    "bsp, restore": ({"kind": "parameter_server"}, {"on_failure": "restore", "checkpoint": {"steps": 5}}),
    "asp, continue": (GOES_ON["asp"], {"on_failure": "continue"}),
    "ring, continue": ({"kind": "all_reduce"}, {"on_failure": "continue"}),
}


def partition(lasts: str, **keys: Any) -> Document:
    return {"kind": "partition", "apart": APART, "at": {"time": "10ms"}, "lasts": lasts, **keys}


def blocked_s(trial: Any, rank: int) -> float:
    """Return the longest time for which a worker was blocked on the network in a step, in virtual seconds."""
    return max(float(row["exchange_s"] + row["wait_s"]) for row in trial.steps(rank))


@pytest.mark.parametrize("strategy", DISTRIBUTED.values(), ids=DISTRIBUTED)
def test_every_strategy_survives_a_partition_of_five_seconds(simulate: Simulate, strategy: Document) -> None:
    """Messages arrive when the partition ends: no sample is lost, and synchronous training has the same bits."""
    undisturbed, trial = (
        simulate(strategy, WORKERS, events=events, optimiser=SGD) for events in ([], [partition("5s")])
    )

    (stop,) = trial.events("coordinator", "run_stop")
    assert stop["metadata"]["reason"] == "budget used"
    is_synchronous = trial.plan.is_synchronous and (trial.plan.second_phase or trial.plan).is_synchronous
    excess = stop["metadata"]["samples_count"] - trial.plan.sample_budget
    assert excess == 0 if is_synchronous else 0 <= excess < trial.plan.batch
    assert np.isfinite(trial.params).all()
    assert max(blocked_s(trial, rank) for rank in range(WORKERS)) > 4.9
    if is_synchronous:
        assert trial.params.tobytes() == undisturbed.params.tobytes()


@pytest.mark.parametrize("strategy", GOES_ON.values(), ids=GOES_ON)
def test_workers_that_reach_the_server_train_during_a_partition(simulate: Simulate, strategy: Document) -> None:
    """Only the workers that are cut off from the server wait."""
    trial = simulate(strategy, WORKERS, events=[partition("5s")], dataset=MANY_SAMPLES, epochs=1)

    assert min(blocked_s(trial, rank) for rank in (2, 3)) > 4.9
    assert max(blocked_s(trial, rank) for rank in (0, 1)) < 0.1
    assert {row["step"] for row in trial.steps(0) if 0.1 < row["start_s"] < 5}


@pytest.mark.parametrize("strategy", DISTRIBUTED.values(), ids=DISTRIBUTED)
def test_a_partition_longer_than_the_step_timeout_ends_the_trial_and_is_named(
    simulate: Simulate, strategy: Document
) -> None:
    """The node whose message is missing knows only that it is late; the reader must learn both sides and the event."""
    with pytest.raises(NetworkError) as raised:
        simulate(strategy, WORKERS, events=[partition("60s")], timeouts={"step": "2s"}, optimiser=SGD)

    expected = r"a partition separated worker-2 and worker-3 from .*worker-0 and .* at 0.01 s for 60s, as declared in"
    assert re.search(expected, str(raised.value))


@pytest.mark.parametrize(("strategy", "recovery"), POLICIES.values(), ids=POLICIES)
def test_every_policy_ends_a_trial_after_a_partition_longer_than_the_step_timeout(
    simulate: Simulate, strategy: Document, recovery: Document
) -> None:
    """Heartbeats use the control network, which has no partition, so that no node is lost."""
    event, timeouts = partition("200s"), {"step": "2s"}

    with pytest.raises(NetworkError, match=r"within 2 s.* a partition separated worker-2 and worker-3 from "):
        simulate(strategy, WORKERS, events=[event], timeouts=timeouts, recovery=recovery)


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        ("from_apart", "a partition stopped messages from worker-2 and worker-3 to worker-0 and worker-1"),
        ("to_apart", "a partition stopped messages from worker-0 and worker-1 to worker-2 and worker-3"),
    ],
)
def test_the_direction_of_a_partition_is_named(simulate: Simulate, direction: str, expected: str) -> None:
    """A reader looks for the late message at its sender."""
    event = partition("60s", direction=direction) | {"at": {"step": 3}}

    with pytest.raises(NetworkError) as raised:
        simulate({"kind": "all_reduce"}, WORKERS, events=[event], timeouts={"step": "2s"})

    assert f"; {expected} at step 3 for 60s, as declared in events[0]" in str(raised.value)


def test_an_earlier_partition_is_not_named(simulate: Simulate) -> None:
    """A partition that ended long before an error is not its reason."""
    later = {"kind": "link", "of": ["worker-0"], "uplink": "1bit", "at": {"time": "6s"}}
    cluster = {"worker": {"throughput": "10/s", "uplink": "1mbit", "downlink": "1mbit"}}

    with pytest.raises(ExceptionGroup) as raised:
        simulate(
            {"kind": "all_reduce"}, 2, events=[partition("1s", apart=["worker-1"]), later], cluster=cluster,
            timeouts={"step": "2s"},
        )  # fmt: skip

    assert "partition" not in str(first_error_in_group(raised.value))
