"""Declared faults of nodes in virtual time: a trial ends with the reason, or goes on after the node was frozen."""

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from services.cluster.links.fluid_link import RateLimiter
from services.runtime.transport import Message, MessageKind, MessageTag
from services.schema.errors import DeclaredNodeLoss, PeerUnreachable, first_error_in_group
from services.transport.virtual import VirtualFabric

Simulate = Callable[..., Any]

RING, SERVER = {"kind": "all_reduce"}, {"kind": "parameter_server"}
ASYNCHRONOUS = {"kind": "parameter_server", "synchronisation": {"kind": "asp"}}
PACED = {"worker": {"throughput": "60/s"}}  # 6 samples of each of two workers: 0.1 s, and no time for messages


STRATEGIES: dict[str, dict[str, Any]] = {
    "ring": RING,
    "ring with residuals": {
        "kind": "all_reduce",
        "compress": {"kind": "error_feedback", "inner": {"kind": "top_k", "ratio": 0.1}},
    },
    "bsp": SERVER,
    "asp": {"kind": "parameter_server", "synchrony": {"kind": "asp"}},
    "ssp": {"kind": "parameter_server", "synchrony": {"kind": "ssp", "staleness": 2}},
    "servers beside workers": {"kind": "parameter_server", "placement": {"kind": "colocated"}},
    "local sgd": {"kind": "local_sgd", "period": 3},
    "gossip": {"kind": "d_psgd"},
    "asynchronous gossip": {"kind": "ad_psgd"},
    "ring, then asp": {
        "kind": "strategy_switch",
        "after": {"kind": "parameter_server", "synchrony": {"kind": "asp"}},
        "when": {"kind": "at", "fraction": 0.5},
    },
}

WITH_SERVERS = ("bsp", "asp", "ssp", "ring, then asp")


def step_times(trial: Any, rank: int) -> list[float]:
    """Return the seconds of each step of a worker."""
    return [row["step_s"] for row in trial.steps(rank)]


def applied_faults(trial: Any) -> list[dict[str, Any]]:
    """Return the records of faults that the simulation has applied."""
    return [event["value"] for event in trial.events("coordinator", "event_applied")]


def reason_of_end(simulate: Simulate, strategy: dict[str, Any], *events: dict[str, Any]) -> str:
    """Return why a trial with these events ended."""
    with pytest.raises(ExceptionGroup) as raised:
        simulate(strategy, 2, cluster=PACED, events=list(events))
    error = first_error_in_group(raised.value)
    assert isinstance(error, DeclaredNodeLoss)
    return str(error)


@pytest.mark.parametrize("strategy", [RING, SERVER])
def test_killed_worker_ends_the_trial_with_node_step_and_event(simulate: Simulate, strategy: dict[str, Any]) -> None:
    """The reader of the status must not take a declared fault for an error of the program."""
    slowdown = {"kind": "slowdown", "of": ["worker-0"], "factor": 2, "at": {"step": 1}, "lasts": "1s"}
    kill = {"kind": "kill", "of": ["worker-1"], "at": {"step": 3}}

    assert reason_of_end(simulate, strategy, slowdown, kill) == (
        "worker-1 was killed at step 3, as declared in events[1]"
    )


@pytest.mark.parametrize("node", ["server-0", "coordinator"])
def test_killed_server_or_coordinator_ends_the_trial(simulate: Simulate, node: str) -> None:
    """Faults concern every role; a fault without workers begins with the step of any worker."""
    restart = {"kind": "restart", "of": [node], "at": {"step": 3}, "after": "1s"}

    assert reason_of_end(simulate, SERVER, restart) == (
        f"{node} was killed and away at step 3 for 1s, as declared in events[0]"
    )


def test_kill_at_a_time_ends_the_trial_at_that_time(simulate: Simulate) -> None:
    """The time counts from the start of training."""
    kill = {"kind": "kill", "of": ["worker-1"], "at": {"time": "450ms"}}

    assert reason_of_end(simulate, RING, kill) == "worker-1 was killed at 0.45 s, as declared in events[0]"


def test_node_out_of_memory_ends_the_trial(simulate: Simulate) -> None:
    """In virtual time, nodes have no memory of their own, and the fault has the effect of a kill."""
    oom = {"kind": "oom", "of": ["worker-0"], "at": {"share": 0.5}}

    assert reason_of_end(simulate, RING, oom) == "worker-0 ran out of memory at step 10, as declared in events[0]"


def test_kill_after_the_end_of_training_changes_nothing(simulate: Simulate) -> None:
    """A node that has finished can't be lost any more."""
    kill = {"kind": "kill", "of": ["worker-1"], "at": {"time": "30s"}}

    trial = simulate(RING, 2, cluster=PACED, events=[kill])

    assert trial.value("coordinator", "run_stop") is None
    assert applied_faults(trial) == []


def test_frozen_worker_computes_for_so_much_longer(simulate: Simulate) -> None:
    """The freeze begins in the middle of the second step; the other worker waits for the frozen one."""
    stop = {"kind": "stop", "of": ["worker-1"], "at": {"time": "150ms"}, "lasts": "2s"}

    trial = simulate(RING, 2, cluster=PACED, events=[stop])

    assert step_times(trial, 0)[:3] == pytest.approx([0.1, 2.1, 0.1], abs=1e-6)
    assert step_times(trial, 1)[:3] == pytest.approx([0.1, 2.1, 0.1], abs=1e-6)
    assert trial.value("worker-1", "node_stop")["missed_deadlines"] == 0
    assert [(fault["phase"], fault["applied_s"], fault["nodes"]) for fault in applied_faults(trial)] == [
        ("begin", pytest.approx(0.15), ["worker-1"]),
        ("end", pytest.approx(2.15), ["worker-1"]),
    ]
    assert trial.events("worker-1", "event_applied") == [], "the engine's record is the only one"


def test_frozen_server_answers_when_it_continues(simulate: Simulate) -> None:
    """A server computes nothing, but all workers of a synchronous step wait for it."""
    stop = {"kind": "stop", "of": ["server-0"], "at": {"step": 2}, "lasts": "3s"}

    trial = simulate(SERVER, 2, cluster=PACED, events=[stop])

    assert step_times(trial, 0)[:4] == pytest.approx([0.1, 0.1, 3.0, 0.1], abs=1e-6)


def test_frozen_coordinator_delays_only_the_evaluation(simulate: Simulate) -> None:
    """Workers need the coordinator at the end of an epoch, after seven steps, and not before."""
    stop = {"kind": "stop", "of": ["coordinator"], "at": {"time": "350ms"}, "lasts": "2s"}

    trial = simulate(RING, 2, cluster=PACED, events=[stop])

    assert step_times(trial, 0)[:6] == pytest.approx([0.1] * 6, abs=1e-6)
    assert trial.steps(0)[7]["start_s"] - trial.steps(0)[0]["start_s"] == pytest.approx(2.35, abs=1e-6)


def test_freeze_changes_no_result_of_synchronous_training(simulate: Simulate) -> None:
    """Messages to a frozen node wait; none is lost or applied twice."""
    stop = {"kind": "stop", "of": ["worker-0", "server-0"], "at": {"time": "333ms"}, "lasts": "777ms"}

    baseline, trial = (simulate(SERVER, 2, cluster=PACED, events=events) for events in ([], [stop]))

    assert trial.params.tobytes() == baseline.params.tobytes()


def test_freeze_longer_than_the_timeout_ends_the_trial(simulate: Simulate) -> None:
    """The error names the timeout and its remedy, since nothing distinguishes the frozen node from a slow one."""
    stop = {"kind": "stop", "of": ["worker-1"], "at": {"step": 2}, "lasts": "60s"}

    with pytest.raises(DeclaredNodeLoss) as raised:
        simulate(RING, 2, cluster=PACED, events=[stop], timeouts={"step": "5s"})

    reason = str(raised.value)
    assert "increase timeouts.step" in reason
    assert reason.endswith("; worker-1 was frozen at step 2 for 60s, as declared in events[0]")


def test_peers_of_a_lost_node_get_errors_until_it_is_back(in_virtual_time: Callable[..., Any]) -> None:
    """Sockets behave so: a stream breaks off, connections are refused, and a new process has new streams."""

    async def lose_and_recover() -> Message:
        links = {name: RateLimiter(inf) for name in ("worker-0", "worker-1")}
        fabric = VirtualFabric(links, links, timeout_s=10)
        survivor, lost = (fabric.make_transport(name) for name in links)
        await lost.send("worker-0", Message(MessageTag(0, MessageKind.PUSH)))
        await survivor.receive("worker-1", MessageTag(0, MessageKind.PUSH))
        fabric.lose_node("worker-1")
        with pytest.raises(PeerUnreachable, match="broke off"):
            await survivor.receive("worker-1", MessageTag(1, MessageKind.PUSH))
        with pytest.raises(PeerUnreachable, match="refused"):
            await survivor.send("worker-1", Message(MessageTag(0, MessageKind.REPLY)))
        fabric.recover_node("worker-1")
        await lost.send("worker-0", Message(MessageTag(0, MessageKind.PUSH), b"again"))
        return await survivor.receive("worker-1", MessageTag(0, MessageKind.PUSH))

    assert in_virtual_time(lose_and_recover()).data == b"again"


def test_node_that_continues_gets_its_messages_before_timeouts_are_checked(
    in_virtual_time: Callable[..., Any],
) -> None:
    """A process that continues after SIGCONT reads its sockets, and then finds that the message was in time."""

    async def freeze_beyond_the_timeout() -> float:
        links = {name: RateLimiter(inf) for name in ("worker-0", "worker-1")}
        fabric = VirtualFabric(links, links, timeout_s=2)
        receiver, sender = (fabric.make_transport(name) for name in links)
        reception = asyncio.get_running_loop().create_task(
            receiver.receive("worker-1", MessageTag(0, MessageKind.PUSH))
        )
        await asyncio.sleep(1)
        fabric.freeze_node("worker-0")
        await sender.send("worker-0", Message(MessageTag(0, MessageKind.PUSH)))
        asyncio.get_running_loop().call_later(5, fabric.thaw_node, "worker-0")
        await reception
        return asyncio.get_running_loop().time()

    assert in_virtual_time(freeze_beyond_the_timeout()) == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("name", "node"),
    [
        (name, node)
        for name in STRATEGIES
        for node in ("worker-1", "server-0", "coordinator")
        if node != "server-0" or name in WITH_SERVERS
    ],
)
@pytest.mark.parametrize("moment", [{"step": 0}, {"share": 0.5}, {"time": "1.9s"}], ids=["first", "middle", "late"])
def test_every_strategy_ends_with_the_declared_loss(
    simulate: Simulate, name: str, node: str, moment: dict[str, Any]
) -> None:
    """Nothing hangs and no other error hides the fault, whichever node is lost at whatever moment."""
    kill = {"kind": "kill", "of": [node], "at": moment}

    with pytest.raises(ExceptionGroup) as raised:
        simulate(STRATEGIES[name], 4, cluster={"worker": {"throughput": "30/s"}}, events=[kill])

    error = first_error_in_group(raised.value)
    assert isinstance(error, DeclaredNodeLoss)
    assert str(error).startswith(f"{node} was killed at ")
    assert str(error).endswith(", as declared in events[0]")
