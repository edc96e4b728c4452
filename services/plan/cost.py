"""Message sizes and cost model of a planned cluster.

Step times are predicted from the cost model.
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from services.cluster.links.fluid_link import MAX_FLUID_MESSAGE_BYTES, choose_message_bytes, to_goodput_bytes_per_s
from services.cluster.links.message_lengths import GRPC_MESSAGE_SIZE_LIMITS, TCP_MESSAGE_SIZE_LIMITS, MessageSizeLimits
from services.cluster.network import Network
from services.learning.data_order import DataOrder, RankWeights
from services.plan.node_plan import NodePlan
from services.scenario.run_settings import EngineName, TransportName
from services.strategies.compute_times import ComputeTimes
from services.strategies.cost_model import CostModel

MAX_DRAWN_STEPS = 2000  # of a training phase: the mean of more steps is hardly different, and drawing them takes time
DTYPE_BY_PRECISION = {"fp32": "float32", "fp64": "float64"}


class ModelVector(NamedTuple):
    """Parameter vector of the trained model, and its size on the wire."""

    entries: int
    dtype: str  # NumPy's name of the type of an entry
    payload_scale: float = 1.0  # bytes on the wire per byte of the vector

    @property
    def entry_bytes(self) -> float:
        """Bytes of one entry on the wire."""
        return np.dtype(self.dtype).itemsize * self.payload_scale

    @property
    def size_bytes(self) -> int:
        """Bytes of the vector on the wire."""
        return round(self.entries * self.entry_bytes)


def choose_message_size_limits(
    engine: EngineName, transport: TransportName, vector_bytes: int, *, is_declared_size: bool
) -> MessageSizeLimits:
    """Return the limits on the size of the messages that carry a long vector.

    A vector of `vector_bytes` is cut into messages of such sizes. Messages are short where no kernel shapes the links,
    so that streams share links evenly. `is_declared_size` is as for `choose_message_bytes`.
    """
    fluid_bytes = choose_message_bytes(vector_bytes, is_declared_size=is_declared_size)
    lengths = {"grpc": GRPC_MESSAGE_SIZE_LIMITS, "tcp": TCP_MESSAGE_SIZE_LIMITS}[transport]
    if engine == "simulated":
        return MessageSizeLimits(fluid_bytes, MAX_FLUID_MESSAGE_BYTES)
    return lengths._replace(max_message_bytes=fluid_bytes) if engine == "local" else lengths


def build_cost_model(
    nodes: Sequence[NodePlan],
    network: Network,
    vector: ModelVector,
    message_overhead_s: float,
    message_size_limits: MessageSizeLimits,
) -> CostModel:
    """Return the cost model of a planned cluster, from which exchange times are predicted.

    It has no compute times.

    Args:
        nodes: all nodes of the trial.
        network: shared links and paths between them.
        vector: parameter vector of the trained model.
        message_overhead_s: virtual seconds that this host adds to a message, as calibrated; 0 without calibration. Then
            this time shows as a difference between measured and predicted step times.
        message_size_limits: sizes of the messages into which vectors are cut.
    """
    return CostModel(
        workers=tuple(node.name for node in nodes if node.role == "worker"),
        servers=tuple(node.name for node in nodes if node.role == "ps_shard"),
        entries=vector.entries,
        dtype=vector.dtype,
        payload_scale=vector.payload_scale,
        alpha_s=message_overhead_s,
        message_lengths=message_size_limits,
        uplink_s_per_byte={node.name: 1 / to_goodput_bytes_per_s(node.uplink_bps) for node in nodes},
        downlink_s_per_byte={node.name: 1 / to_goodput_bytes_per_s(node.downlink_bps) for node in nodes},
        network=network,
    )


def plan_compute_times(
    worker_nodes: Sequence[NodePlan],
    data_order: DataOrder,
    batch_weights: RankWeights,
    first_step: int,
    step_count: int,
) -> ComputeTimes:
    """Return the samples and compute times of each worker by step, from `first_step` on.

    The declared variation of a worker's speed is drawn as in the trial. Of a long phase, only the first steps are
    returned; later steps are like them. A worker without a declared speed takes 0 s.
    """
    steps = range(first_step, first_step + min(max(step_count, 1), MAX_DRAWN_STEPS))
    samples = np.array([data_order.share_sizes(step, batch_weights) for step in steps])
    seconds = samples / np.array([node.throughput or inf for node in worker_nodes])
    for rank, node in enumerate(worker_nodes):
        if node.variation:
            seconds[:, rank] *= [node.variation.duration_factor(data_order.seed, rank, step) for step in steps]
    return ComputeTimes(samples, seconds)
