"""Payload bytes that each node of a training sends per step and before an evaluation."""

from services.learning.optimisers import AnyOptimiser
from services.strategies import SinglePhaseStrategy
from services.strategies.base import BytesPerStep
from services.strategies.cost_model import CostModel


def sent_bytes_per_step(
    phase: SinglePhaseStrategy, cost_model: CostModel, worker_optimiser: AnyOptimiser
) -> BytesPerStep:
    """Return the payload bytes that each node sends per step of a training phase, in all vectors of its exchanges."""
    sent = phase.sent_bytes_per_step(len(cost_model.workers), cost_model.entries, cost_model.dtype)
    return sent.multiply(phase.describe_worker_exchange().count_vectors(worker_optimiser))


def evaluation_bytes_by_worker(phase: SinglePhaseStrategy, cost_model: CostModel) -> dict[str, float]:
    """Return the payload bytes that each worker sends before an evaluation; empty if the strategy exchanges nothing."""
    evaluation_sum = phase.describe_worker_exchange().evaluation_sum
    if evaluation_sum is None:
        return {}
    sent = evaluation_sum.sent_bytes_by_rank(len(cost_model.workers), cost_model.entries, cost_model.dtype)
    return sent_bytes_by_node(BytesPerStep(sent), 0, cost_model.payload_scale) if any(sent) else {}


def reply_bytes_by_worker(sent_bytes_by_role: BytesPerStep, payload_scale: float) -> dict[str, float]:
    """Return the bytes that each worker's server shard sends to other workers per step.

    The bytes are those of payloads on the wire, by node name.
    """
    return {
        f"worker-{rank}": _scale_bytes(size_bytes, payload_scale)
        for rank, size_bytes in enumerate(sent_bytes_by_role.replies)
    }


def sent_bytes_by_node(sent_bytes_by_role: BytesPerStep, server_count: int, payload_scale: float) -> dict[str, float]:
    """Return the payload bytes on the wire that each node sends per step, by node name.

    The value is 0 for servers that are not used.
    """
    worker_bytes = {f"worker-{rank}": size_bytes for rank, size_bytes in enumerate(sent_bytes_by_role.workers)}
    server_bytes = sent_bytes_by_role.servers or (0,) * server_count
    sent = worker_bytes | {f"server-{rank}": size_bytes for rank, size_bytes in enumerate(server_bytes)}
    return {name: _scale_bytes(size_bytes, payload_scale) for name, size_bytes in sent.items()}


def _scale_bytes(size_bytes: float, payload_scale: float) -> float:
    """Return the bytes on the wire for bytes of the trained model's vector; the same number without a payload."""
    return size_bytes if payload_scale == 1 else size_bytes * payload_scale
