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
from services.learning.batch_balance import BatchBalance
from services.learning.batch_balance.base import BatchShares
from services.learning.data_order import DataOrder
from services.plan.node_plan import NodePlan
from services.scenario.run_settings import EngineName, TransportName
from services.schema.arrays import HostArray
from services.strategies.cost_model import CostModel
from services.strategies.cost_model.compute_times import ComputeTimes

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
    initial_shares: BatchShares,
    steps: range,
    balance: BatchBalance,
) -> ComputeTimes:
    """Return the samples and compute times of each worker in each of the given steps.

    The declared variation of a worker's speed is drawn as in the trial, and shares change as in the trial. Of a long
    phase, only the first steps are returned; later steps are like them. A worker without a declared speed takes 0 s.
    """
    drawn_steps = steps[:MAX_DRAWN_STEPS] or range(steps.start, steps.start + 1)
    throughputs = np.array([node.throughput or inf for node in worker_nodes])
    factors = np.ones((len(drawn_steps), len(worker_nodes)))
    for rank, node in enumerate(worker_nodes):
        if node.variation:
            factors[:, rank] = [node.variation.duration_factor(data_order.seed, rank, step) for step in drawn_steps]
    shares = _plan_shares(data_order, initial_shares, drawn_steps, balance, factors / throughputs)
    samples = np.array(
        [data_order.share_sizes(*step_and_shares) for step_and_shares in zip(drawn_steps, shares, strict=True)]
    )
    return ComputeTimes(samples, samples / throughputs * factors)


def _plan_shares(
    data_order: DataOrder,
    initial_shares: BatchShares,
    steps: range,
    balance: BatchBalance,
    seconds_per_sample: HostArray,
) -> list[BatchShares]:
    """Return the workers' shares of a whole batch in each step.

    Each worker measures exactly its declared speed. `seconds_per_sample` has the shape (steps, workers).
    """
    if not balance.resize_period:
        return [initial_shares] * len(steps)
    shares, speeds, shares_by_step = initial_shares, [0.0] * len(initial_shares), []
    for step, step_seconds_per_sample in zip(steps, seconds_per_sample.tolist(), strict=True):
        shares_by_step.append(shares)
        samples = data_order.share_sizes(step, shares)
        speeds = [
            balance.smooth_speed(speed, count, count * seconds)
            for speed, count, seconds in zip(speeds, samples, step_seconds_per_sample, strict=True)
        ]
        if (step + 1) % balance.resize_period == 0:
            shares = balance.resize_shares(shares, tuple(speeds))
    return shares_by_step
