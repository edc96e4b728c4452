"""Declared drops of connections in virtual time: what is on its way is sent again, and the training stays the same."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from services.cluster.addresses import DummyAddresses
from services.cluster.network import Network
from services.node.simulate import simulate_trial
from services.plan import COORDINATOR, TrainingPlan, make_plan
from services.runtime.run_log import LOG_LINE_PREFIX
from services.runtime.transport import Message, MessageKind, MessageTag
from services.scenario.scenario import Scenario
from services.schema.errors import DeadlineExceeded
from services.transport.virtual_connections import VirtualConnections

Events = dict[str, list[dict[str, Any]]]  # by key, of all nodes; the value of each has the name of its node
STRATEGIES: dict[str, dict[str, Any]] = {
    "all_reduce": {"kind": "all_reduce"},
    "bsp": {"kind": "parameter_server"},
    "asp": {"kind": "parameter_server", "synchrony": {"kind": "asp"}},
    "local_sgd": {"kind": "local_sgd", "period": 3},
    "d_psgd": {"kind": "d_psgd"},
}
SAMPLES_OF_BUDGET, BATCH = 240, 12


def train(strategy: dict[str, Any], *drops: dict[str, Any], delay: str = "20ms") -> Events:
    """Train in virtual time with links on which messages are always on their way, and return the log events."""
    document = {
        "name": "drops",
        "workload": {
            "dataset": {"kind": "synthetic_regression", "samples": 100, "features": 4, "outputs": 2, "hidden": 8},
            "model": {"kind": "mlp", "hidden": [20]},
            "optimiser": {"kind": "sgd", "rate": 0.05},
            "batch": BATCH,
            "epochs": 3,
        },
        "cluster": {
            "workers": 3,
            "worker": {"throughput": "1000/s", "uplink": "1mbit", "downlink": "1mbit", "delay": delay},
        },
        "transport": "tcp",
        "strategies": {"it": strategy},
        "baseline": False,
        "events": [{"kind": "drop_connection", **drop} for drop in drops],
    }
    (trial,) = Scenario.decode(document).trials()
    plan = make_plan(trial, "drops", "simulated", DummyAddresses())
    assert isinstance(plan, TrainingPlan)
    lines: dict[str, list[str]] = {node.name: [] for node in plan.nodes}
    simulate_trial(plan, lambda node: lines[node].append)
    events: Events = {}
    for node, node_lines in lines.items():
        for line in node_lines:
            event = json.loads(line.removeprefix(LOG_LINE_PREFIX))
            events.setdefault(event["key"], []).append({**event, "node": node})
    return events


def step_rows(events: Events) -> list[dict[str, Any]]:
    batches = [event["value"] for event in events["node_steps"]]
    return [dict(zip(batch["columns"], row, strict=True)) for batch in batches for row in batch["rows"]]


@pytest.mark.parametrize("name", STRATEGIES)
def test_dropped_connections_change_no_result(name: str) -> None:
    """Messages on their way are lost and sent again, so nothing is lost and nothing is applied twice."""
    nodes = ["worker-0", "worker-1", "worker-2"] + (["server-0"] if "parameter_server" in str(STRATEGIES[name]) else [])
    drops = [{"of": nodes, "at": {"time": f"{ms}ms"}} for ms in range(30, 600, 40)]

    undisturbed, dropped = train(STRATEGIES[name]), train(STRATEGIES[name], *drops)

    reopenings = [event["value"] for event in dropped["connection_reopened"]]
    assert len(dropped["connection_dropped"]) == len(reopenings) >= 12
    assert sum(reopening["resent_messages"] for reopening in reopenings) >= 5
    samples = sum(row["samples"] for row in step_rows(dropped))
    assert 0 <= samples - SAMPLES_OF_BUDGET <= (BATCH if name == "asp" else 0)
    if name != "asp":
        digests = [events["params_sha256"][0]["value"] for events in (undisturbed, dropped)]
        assert digests[0] == digests[1]
    durations_s = [
        events["run_stop"][0]["time_ms"] - events["run_start"][0]["time_ms"] for events in (undisturbed, dropped)
    ]
    assert durations_s[0] < durations_s[1], "connections need time to be opened again"


def test_a_drop_at_a_step_concerns_the_connections_between_its_nodes_only() -> None:
    """Each node drops the connections over which it sends; the log has the times of drop and new connection."""
    events = train(STRATEGIES["all_reduce"], {"of": ["worker-0", "worker-1"], "at": {"step": 5}})

    assert {event["node"]: event["value"]["peer"] for event in events["connection_dropped"]} == {
        "worker-0": "worker-1",
        "worker-1": "worker-0",
    }
    assert [event["value"]["kind"] for event in events["event_applied"]] == ["drop_connection"] * 2
    for reopening in events["connection_reopened"]:
        assert 0.2099 <= reopening["value"]["seconds"] < 1


def test_a_drop_is_repeated_by_a_law() -> None:
    """All connections of the event end together at each occurrence."""
    law = {"kind": "exponential", "mean": "100ms"}
    drop = {"of": ["worker-0", "worker-1"], "at": {"law": law, "per": "event"}}

    events = train(STRATEGIES["all_reduce"], drop)

    applied = [event["value"]["number"] for event in events["event_applied"]]
    assert len(set(applied)) >= 3
    assert COORDINATOR not in {event["node"] for event in events["event_applied"]}


def test_a_message_that_can_not_be_sent_again_in_time_ends_the_stream(
    in_virtual_time: Callable[[Coroutine[Any, Any, Any]], Any],
) -> None:
    """Otherwise senders would wait for ever for the connection that replaces the dropped one."""

    async def resend(_source: str, _target: str, _message: Message) -> None:
        raise DeadlineExceeded("worker-1 did not accept a message within 60 s")

    async def main() -> None:
        message = Message(MessageTag(0, MessageKind.PUSH))
        connections = VirtualConnections(Network(), lambda _source, _target: [message], resend)
        connections.drop("worker-0", "worker-1", "cut", None)
        async with asyncio.timeout(10):
            await connections.wait_until_connected("worker-0", "worker-1")

    with pytest.raises(DeadlineExceeded, match="worker-1 did not accept"):
        in_virtual_time(main())
