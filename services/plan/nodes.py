"""Nodes, network and site of a trial, as its scenario declares the cluster."""

from collections.abc import Sequence
from math import prod
from typing import Any

from services.cluster.addresses import Addressing, Place
from services.cluster.network import Network, Port, resolve
from services.collectives import CollectiveSite
from services.learning.layout import ParameterLayout
from services.plan.node_plan import COORDINATOR, NodePlan
from services.scenario.scenario import Scenario
from services.strategies.cost_model import CostModel

FASTEST_S = 8 / 10e9  # per byte: no link that nobody limits is faster on one host


def plan_nodes(scenario: Scenario, servers: int, addressing: Addressing) -> tuple[NodePlan, ...]:
    """The coordinator, the servers, the workers, in the order in which they get their addresses."""
    cluster = scenario.cluster
    coordinator = NodePlan(
        name=COORDINATOR, role="coordinator", rank=0, place=addressing.place(0), memory_bytes=1 << 30, cpus=1.0
    )
    shards = (_server(scenario, rank, addressing.place(1 + rank)) for rank in range(servers))
    workers = (_worker(scenario, rank, addressing.place(1 + servers + rank)) for rank in range(cluster.workers))
    return (coordinator, *shards, *workers)


def _server(scenario: Scenario, rank: int, place: Place) -> NodePlan:
    server = scenario.cluster.server
    return NodePlan(
        name=f"server-{rank}",
        role="ps_shard",
        rank=rank,
        place=place,
        memory_bytes=int(server.memory),
        cpus=server.cpus,
        **_port(server.resolved),
    )


def _worker(scenario: Scenario, rank: int, place: Place) -> NodePlan:
    """Slots are staggered over the workers, so that their mathematics doesn't meet on the host's cores."""
    worker = scenario.worker(rank)
    return NodePlan(
        name=f"worker-{rank}",
        role="worker",
        rank=rank,
        place=place,
        device=worker.device,
        throughput=worker.samples_per_s,
        variation=worker.variation,
        slot=rank / scenario.cluster.workers,
        memory_bytes=int(worker.memory),
        cpus=worker.cpus,
        **_port(worker.resolved),
    )


def _port(port: Port) -> dict[str, Any]:
    """What a node's plan says of its link; delays and losses stand in the paths."""
    buffer_bytes = None if port.buffer is None else int(port.buffer)
    return {"uplink_bps": port.uplink, "downlink_bps": port.downlink, "buffer_bytes": buffer_bytes}


def plan_network(scenario: Scenario, nodes: Sequence[NodePlan]) -> Network:
    """Pipes and paths between everybody on the data network."""
    members = [node for node in nodes if node.role != "coordinator"]
    cluster = scenario.cluster
    ports = {node.name: cluster.port(node.name) for node in members}
    return resolve(cluster.network, cluster.links, members, ports)


def plan_site(
    scenario: Scenario, nodes: Sequence[NodePlan], layout: ParameterLayout, itemsize: int, cost: CostModel
) -> CollectiveSite:
    """Which workers stand together, how far from each other, and of which arrays the vector is made."""
    ranks = {node.name: node.rank for node in nodes if node.role == "worker"}
    members = [node for node in nodes if node.role != "coordinator"]
    places = scenario.cluster.network.places(members)
    return CollectiveSite(
        racks=tuple(tuple(ranks[name] for name in place if name in ranks) for place in places),
        array_sizes=tuple(prod(shape) for _, shape in layout.arrays),
        entry_bytes=itemsize,
        bandwidth_delay_bytes=_round_trip_bytes(cost),
    )


def _round_trip_bytes(cost: CostModel) -> int:
    """What a worker sends to another until an answer could be back: of the longest way."""
    sent = [
        (path.delay_s, cost.uplink_s_per_byte[path.source])
        for path in cost.network.paths
        if path.source in cost.workers
    ]
    return int(max((2 * delay_s / max(byte_s, FASTEST_S) for delay_s, byte_s in sent), default=0.0))
