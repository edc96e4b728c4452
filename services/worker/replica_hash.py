"""Digest of the parameters of a worker, by which the replicas of all workers are compared."""

import hashlib

from services.runtime.run_log import RunLog
from services.schema.arrays import HostArray, Vector
from services.strategies import WorkerContext


def vector_sha256(vector: HostArray) -> str:
    """Return the SHA-256 digest of a vector in host memory."""
    return hashlib.sha256(vector.tobytes()).hexdigest()


def log_replica_hash(log: RunLog, context: WorkerContext, params: Vector, step: int) -> None:
    """Log the digest of a worker's parameters before `step`."""
    log.log_event("node_hash", vector_sha256(context.device.to_host(params)), step=step)
