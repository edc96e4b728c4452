"""The cost model of a planned cluster."""

from collections.abc import Sequence

from services.cluster.fluid_link import QUANTUM_BYTES, goodput, quantum_bytes
from services.cluster.message_lengths import GRPC, TCP, Lengths
from services.cluster.network import Network
from services.learning.data_order import apportion
from services.plan.node_plan import NodePlan
from services.scenario.scenario import EngineName, TransportName
from services.strategies.cost_model import CostModel

DTYPES = {"fp32": "float32", "fp64": "float64"}


def message_lengths(engine: EngineName, transport: TransportName, vector_bytes: int) -> Lengths:
    """Where the kernel does not shape links, messages are short, to share them well."""
    shared, planes = quantum_bytes(vector_bytes), {"grpc": GRPC, "tcp": TCP}
    if engine == "simulated":
        return Lengths(shared, QUANTUM_BYTES)
    return planes[transport]._replace(largest=shared) if engine == "local" else planes[transport]


def cost_model(
    nodes: Sequence[NodePlan], network: Network, entries: int, dtype: str, batch: int, alpha_s: float, cut: Lengths
) -> CostModel:
    """What the closed forms need.

    Nothing is declared about the time per message. What this host adds is in it when it was calibrated, and is not
    guessed otherwise: it shows as the remainder between measured and predicted.
    """
    workers = [node for node in nodes if node.role == "worker"]
    shares = apportion(batch, (1,) * len(workers))
    times = zip(shares, workers, strict=True)
    computes_s = tuple(share / node.throughput if node.throughput else 0.0 for share, node in times)
    return CostModel(
        workers=tuple(node.name for node in workers),
        servers=tuple(node.name for node in nodes if node.role == "ps_shard"),
        entries=entries,
        dtype=dtype,
        alpha_s=alpha_s,
        lengths=cut,
        uplink_s_per_byte={node.name: 1 / goodput(node.uplink_bps) for node in nodes},
        downlink_s_per_byte={node.name: 1 / goodput(node.downlink_bps) for node in nodes},
        network=network,
        compute_s=max((max(shares) / node.throughput for node in workers if node.throughput), default=0.0),
        worker_compute_s=computes_s,
        variations=tuple(node.variation for node in workers),
    )
