"""Trainings over TCP whose connections end at random bytes have the results of trainings that are not disturbed."""

import asyncio
import json
import socket
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cutting_proxy import CuttingProxy

from compose.runs.certificates import issue_certificates
from services.cluster.addresses import Address, DummyAddresses
from services.node.coordinator_assembly import make_coordinator
from services.node.node_services import NodeServices
from services.node.simulate import NODE_RUNNERS, InProcessCoordinatorClient, simulate_trial
from services.plan import COORDINATOR, TrainingPlan, make_plan
from services.runtime.clock import WallClock, make_precise_event_loop
from services.runtime.identity import NodeIdentity
from services.runtime.refused_connections import RefusedConnectionLog
from services.runtime.run_log import LOG_LINE_PREFIX, RunLog
from services.scenario.scenario import Scenario
from services.transport.streams.connection_log import ConnectionLog
from services.transport.tcp.data_plane import TcpTransport

Lines = dict[str, list[str]]
STRATEGIES: dict[str, dict[str, Any]] = {
    "all_reduce": {"kind": "all_reduce"},
    "bsp": {"kind": "parameter_server", "servers": 2},
    "asp": {"kind": "parameter_server", "servers": 2, "synchrony": {"kind": "asp"}},
}
SAMPLES_OF_BUDGET, BATCH, MEAN_BYTES = 480, 12, 60_000


def plan_of(strategy: dict[str, Any]) -> TrainingPlan:
    """Return the plan of a training of three workers with messages of about 30 kB."""
    document = {
        "name": "cut",
        "workload": {
            "dataset": {"kind": "synthetic_regression", "samples": 200, "features": 60, "outputs": 2},
            "model": {"kind": "mlp", "hidden": [200]},
            "optimiser": {"kind": "sgd", "rate": 0.01},
            "batch": BATCH,
            "epochs": 3,
        },
        "cluster": {"workers": 3},
        "strategies": {"it": strategy},
        "baseline": False,
    }
    (trial,) = Scenario.decode(document).trials()
    plan = make_plan(trial, "cut", "simulated", DummyAddresses())
    assert isinstance(plan, TrainingPlan)
    return plan


def free_addresses(names: list[str]) -> dict[str, Address]:
    """Return an address for each node on a loopback host of its own, where no connection of another test begins."""
    sockets = {name: socket.socket() for name in names}
    for number, each in enumerate(sockets.values(), start=2):
        each.bind((f"127.0.1.{number}", 0))
    found = {name: Address(host=each.getsockname()[0], port=each.getsockname()[1]) for name, each in sockets.items()}
    for each in sockets.values():
        each.close()
    return found


async def _do_not_wait(_node_name: str) -> None:
    """Return at once: no node is frozen."""


async def train_over_proxies(plan: TrainingPlan, folder: Path, seed: int) -> tuple[Lines, int]:
    """Run all nodes of a plan in this process, over TCP connections through proxies.

    Return the log lines by node, and the number of connections that the proxies have ended.
    """
    names = [node.name for node in plan.nodes if node.name != COORDINATOR]
    lines: Lines = {node.name: [] for node in plan.nodes}
    addresses, clock, rng = free_addresses(names), WallClock(), Random(seed)
    runtime = make_coordinator(plan, clock, RunLog("", clock, lines[COORDINATOR].append), None)
    proxies: list[CuttingProxy] = []

    async def run_node(name: str) -> None:
        own_view = dict(addresses)
        for peer in names:
            if peer != name:
                proxies.append(proxy := CuttingProxy(addresses[peer], Random(rng.random()), MEAN_BYTES))
                own_view[peer] = await proxy.start()
        log = RunLog(name, clock, lines[name].append)
        transport = TcpTransport(own_view, NodeIdentity.read(name, folder / name), clock, 20.0, 60.0)
        transport.limit_incoming_streams(plan.payload_limit_bytes, RefusedConnectionLog(log))
        transport.log_connections(ConnectionLog(log))
        client = InProcessCoordinatorClient(runtime, name, _do_not_wait)
        services = NodeServices(transport, client, clock, log, lambda: None, lambda: None, client)
        node = plan.node_plan(name)
        async with transport:
            await NODE_RUNNERS[node.role](plan, node, services)

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(run_node(name))
        await runtime.open_start_gate()
        await runtime.run_finished.wait()
    for proxy in proxies:
        await proxy.stop()
    return lines, sum(proxy.cuts for proxy in proxies)


def events(lines: Lines, node: str, key: str) -> list[dict[str, Any]]:
    parsed = (json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in lines[node])
    return [event for event in parsed if event["key"] == key]


def rows(lines: Lines, node: str, key: str) -> list[dict[str, Any]]:
    batches = (event["value"] for event in events(lines, node, key))
    return [dict(zip(batch["columns"], row, strict=True)) for batch in batches for row in batch["rows"]]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", STRATEGIES)
def test_connections_that_end_at_random_bytes_change_no_result(tmp_path: Path, name: str, seed: int) -> None:
    """Every message is applied exactly once: a lost one would stop the training, a repeated one would change it."""
    plan = plan_of(STRATEGIES[name])
    undisturbed: Lines = {node.name: [] for node in plan.nodes}
    simulate_trial(plan, lambda node: undisturbed[node].append)
    issue_certificates("cut", [node.name for node in plan.nodes], tmp_path)

    with asyncio.Runner(loop_factory=make_precise_event_loop) as runner:
        lines, cuts = runner.run(train_over_proxies(plan, tmp_path, seed))

    workers = [node.name for node in plan.node_plans_of_role("worker")]
    reopenings = [event["value"] for node in lines for event in events(lines, node, "connection_reopened")]
    assert cuts >= 20
    assert sum(event["resent_messages"] for event in reopenings) >= 10
    steps = {rank: rows(lines, worker, "node_steps") for rank, worker in enumerate(workers)}
    samples = sum(row["samples"] for worker_steps in steps.values() for row in worker_steps)
    assert 0 <= samples - SAMPLES_OF_BUDGET <= (0 if plan.is_synchronous else BATCH)
    computed = {(rank, row["step"]) for rank, worker_steps in steps.items() for row in worker_steps}
    for owner in plan.shard_owners:
        updates = rows(lines, owner, "shard_updates")
        pushes = Counter((row["worker"], row["push_step"]) for row in updates + rows(lines, owner, "shard_drops"))
        assert pushes == Counter(computed)
        assert sorted({row["version"] for row in updates}) == list(range(1, max(row["version"] for row in updates) + 1))
    if plan.is_synchronous:
        digests = [events(each, COORDINATOR, "params_sha256")[0]["value"] for each in (lines, undisturbed)]
        assert digests[0] == digests[1]
