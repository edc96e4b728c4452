"""Message sizes and cost model of a planned cluster.

Step times are predicted from the cost model.
"""

from collections.abc import Sequence

from services.cluster.links.fluid_link import MAX_FLUID_MESSAGE_BYTES, choose_message_bytes, to_goodput_bytes_per_s
from services.cluster.links.message_lengths import GRPC_MESSAGE_SIZE_LIMITS, TCP_MESSAGE_SIZE_LIMITS, MessageSizeLimits
from services.cluster.network import Network
from services.learning.data_order import split_proportionally
from services.plan.node_plan import NodePlan
from services.scenario.scenario import EngineName, TransportName
from services.strategies.cost_model import CostModel

DTYPE_BY_PRECISION = {"fp32": "float32", "fp64": "float64"}


def choose_message_size_limits(engine: EngineName, transport: TransportName, vector_bytes: int) -> MessageSizeLimits:
    """Return the limits on the size of the messages that carry a long vector.

    A vector of `vector_bytes` is cut into messages of such sizes. Messages are short where no kernel shapes the links,
    so that streams share links evenly.
    """
    fluid_bytes = choose_message_bytes(vector_bytes)
    lengths = {"grpc": GRPC_MESSAGE_SIZE_LIMITS, "tcp": TCP_MESSAGE_SIZE_LIMITS}[transport]
    if engine == "simulated":
        return MessageSizeLimits(fluid_bytes, MAX_FLUID_MESSAGE_BYTES)
    return lengths._replace(max_message_bytes=fluid_bytes) if engine == "local" else lengths


def build_cost_model(
    nodes: Sequence[NodePlan],
    network: Network,
    vector_entries: int,
    dtype: str,
    global_batch_size: int,
    message_overhead_s: float,
    message_size_limits: MessageSizeLimits,
) -> CostModel:
    """Return the cost model of a planned cluster, from which step times are predicted.

    Args:
        nodes: all nodes of the trial.
        network: shared links and paths between them.
        vector_entries: entries of the parameter vector.
        dtype: NumPy's name of the type of an entry.
        global_batch_size: samples per step over all workers.
        message_overhead_s: virtual seconds that this host adds to a message, as calibrated; 0 without calibration. Then
            this time shows as a difference between measured and predicted step times.
        message_size_limits: sizes of the messages into which vectors are cut.
    """
    workers = [node for node in nodes if node.role == "worker"]
    shares = split_proportionally(global_batch_size, (1,) * len(workers))
    computes_s = tuple(
        share / node.throughput if node.throughput else 0.0 for share, node in zip(shares, workers, strict=True)
    )
    return CostModel(
        workers=tuple(node.name for node in workers),
        servers=tuple(node.name for node in nodes if node.role == "ps_shard"),
        entries=vector_entries,
        dtype=dtype,
        alpha_s=message_overhead_s,
        message_lengths=message_size_limits,
        uplink_s_per_byte={node.name: 1 / to_goodput_bytes_per_s(node.uplink_bps) for node in nodes},
        downlink_s_per_byte={node.name: 1 / to_goodput_bytes_per_s(node.downlink_bps) for node in nodes},
        network=network,
        compute_s=max((max(shares) / node.throughput for node in workers if node.throughput), default=0.0),
        worker_compute_s=computes_s,
        variations=tuple(node.variation for node in workers),
    )
