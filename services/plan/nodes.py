"""Planning of the nodes and the network of a trial.

They are planned from the cluster that the scenario declares.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from services.cluster.addresses import AddressAllocator, NodeAddresses
from services.cluster.cluster import WorkerSpec
from services.cluster.network import AccessLink, Network, build_network
from services.cluster.node_faults import COORDINATOR
from services.collectives import NetworkAndModelSizes
from services.compressors import ArrayShape
from services.plan.node_plan import NodePlan
from services.runtime.device import GpuMemoryShare
from services.scenario.run_settings import EngineName
from services.scenario.scenario import Scenario
from services.strategies.cost_model import CostModel

MIN_S_PER_BYTE = 8 / 10e9  # of an unlimited link: on one host it reaches at most 10 Gbit/s


def plan_nodes(
    scenario: Scenario, server_count: int, address_allocator: AddressAllocator, engine: EngineName
) -> tuple[NodePlan, ...]:
    """Return the plans of the coordinator, the servers and the workers, in the order of their addresses."""
    cluster, node_addresses = scenario.cluster, address_allocator.node_addresses
    coordinator = NodePlan(
        name=COORDINATOR, role="coordinator", rank=0, addresses=node_addresses(0), memory_bytes=1 << 30, cpus=1.0
    )
    servers = (_plan_server(scenario, rank, node_addresses(1 + rank)) for rank in range(server_count))
    first_worker, gpu_workers = 1 + server_count, _count_workers_on_gpu(scenario)
    workers = (
        _plan_worker(scenario, rank, node_addresses(first_worker + rank), engine, gpu_workers)
        for rank in range(cluster.workers)
    )
    return (coordinator, *servers, *workers)


def _plan_server(scenario: Scenario, rank: int, addresses: NodeAddresses) -> NodePlan:
    server = scenario.cluster.server
    return NodePlan(
        name=f"server-{rank}",
        role="ps_shard",
        rank=rank,
        addresses=addresses,
        memory_bytes=int(server.memory),
        cpus=server.cpus,
        watts=server.watts,
        price=server.price,
        **_make_node_link_fields(server.with_link_profile_values),
    )


def _plan_worker(
    scenario: Scenario, rank: int, addresses: NodeAddresses, engine: EngineName, gpu_workers: int
) -> NodePlan:
    """Return the plan of one worker, such as its addresses and compute speed.

    The plan also contains the compute device and the link rates. Compute slots are staggered, so that workers with
    emulated compute speed do not all use the host's cores at once.
    """
    worker, compute_speed = scenario.worker_spec(rank), scenario.worker_compute_speed(rank)
    return NodePlan(
        name=f"worker-{rank}",
        role="worker",
        rank=rank,
        addresses=addresses,
        device="cpu" if worker.device == "auto" and not scenario.workload.computes_on_gpu else worker.device,
        gpu_memory=_share_gpu_memory(worker, engine, gpu_workers),
        throughput=compute_speed.samples_per_s if compute_speed else None,
        throughput_derivation=compute_speed.derivation if compute_speed else "",
        variation=worker.variation.restrict_to_rank(rank) if worker.variation else None,
        compute_slot=rank / scenario.cluster.workers,
        memory_bytes=int(worker.memory),
        cpus=worker.cpus,
        watts=worker.watts,
        price=worker.price,
        **_make_node_link_fields(worker.with_link_profile_values),
    )


def _count_workers_on_gpu(scenario: Scenario) -> int:
    """Return how many workers may compute on the GPU of the host."""
    return sum(scenario.worker_spec(rank).device != "cpu" for rank in range(scenario.cluster.workers))


def _share_gpu_memory(worker: WorkerSpec, engine: EngineName, gpu_workers: int) -> GpuMemoryShare:
    """Return the part of a GPU's memory for one worker, if the worker computes on a GPU.

    In virtual time, all workers are in one process, which uses the memory of the GPU for all of them.
    """
    if engine == "simulated":
        return GpuMemoryShare()
    declared = worker.gpu_memory
    return GpuMemoryShare(declared_bytes=None if declared is None else int(declared), workers=max(1, gpu_workers))


def _make_node_link_fields(access_link: AccessLink) -> dict[str, Any]:
    """Return the link fields of a node's plan: rates and buffer size.

    Delay and loss belong to network paths.
    """
    buffer_bytes = None if access_link.buffer is None else int(access_link.buffer)
    return {"uplink_bps": access_link.uplink, "downlink_bps": access_link.downlink, "buffer_bytes": buffer_bytes}


def plan_network(scenario: Scenario, nodes: Sequence[NodePlan]) -> Network:
    """Return the emulated network between all workers and servers."""
    cluster, data_nodes = scenario.cluster, _workers_and_servers(nodes)
    access_links = {node.name: cluster.access_link(node.name) for node in data_nodes}
    return build_network(cluster.network, cluster.links, data_nodes, access_links)


def get_auto_collective_sizes(
    scenario: Scenario,
    node_plans: Sequence[NodePlan],
    array_shapes: tuple[ArrayShape, ...],
    array_flops: tuple[float, ...],
    vector_entry_bytes: float,
    cost_model: CostModel,
    array_names: tuple[str, ...] = (),
) -> NetworkAndModelSizes:
    """Return the sizes of network and model from which a collective algorithm is set up.

    A collective chooses its `auto` values from them. The sizes are the groups of workers that are near each other, the
    array shapes of the model, the size of an entry of the parameter vector, and the bytes that a worker sends during
    the longest round trip. The names of the arrays only describe parts of the vector.
    """
    ranks = {node.name: node.rank for node in node_plans if node.role == "worker"}
    groups = scenario.cluster.network.colocated_node_groups(_workers_and_servers(node_plans))
    return NetworkAndModelSizes(
        racks=tuple(tuple(ranks[name] for name in group if name in ranks) for group in groups),
        array_sizes=tuple(map(prod, array_shapes)),
        array_shapes=array_shapes,
        array_names=array_names,
        array_flops=array_flops,
        entry_bytes=vector_entry_bytes,
        bandwidth_delay_bytes=_max_bandwidth_delay_bytes(cost_model),
    )


def _workers_and_servers(nodes: Sequence[NodePlan]) -> list[NodePlan]:
    """Return the nodes that exchange training data: all except the coordinator."""
    return [node for node in nodes if node.role != "coordinator"]


def _max_bandwidth_delay_bytes(cost_model: CostModel) -> int:
    """Return the largest amount of data in flight on a worker's uplink, in bytes.

    It is the largest number of bytes that the uplink carries during a round trip to another node.
    """
    paths = [path for path in cost_model.network.paths if path.source in cost_model.workers]
    sent_bytes = (2 * path.delay_s / max(cost_model.uplink_s_per_byte[path.source], MIN_S_PER_BYTE) for path in paths)
    return int(max(sent_bytes, default=0.0))
