"""Replies of a server to its workers: the parameters of the shard, or compressed differences to those of a worker.

H. Tang et al., "DoubleSqueeze: parallel stochastic gradient descent with double-pass error-compensated compression",
ICML 2019. We differ in that the server keeps the parameters of each worker: their difference to the parameters of the
server contains what earlier replies have left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.compressors import (
    Compressor,
    CompressorSeed,
    CompressorState,
    IdentityCompressor,
    bytes_to_vector,
    payload_to_bytes,
)
from services.parameter_server.server_state import WorkerReplicaState
from services.schema.arrays import HostArray

IDENTITY_COMPRESSOR = IdentityCompressor()


@dataclass
class WorkerReplica:
    """Parameters of the shard that a worker has, and the state of the compressor of its replies."""

    params: HostArray
    compressor_state: CompressorState


@dataclass
class ReplyEncoder:
    """Encoder of a server's replies, which keeps the parameters of the shard that each worker has.

    Compressors draw the same random numbers for all workers: workers that get all replies together then have the same
    parameters.
    """

    compressor: Compressor
    seed: CompressorSeed
    initial_params: HostArray  # of the shard; all workers have them
    keeps_sent_params: bool = True  # whether to keep what a worker has also where no difference is sent
    _replicas: dict[int, WorkerReplica] = field(default_factory=dict)  # by rank; workers without a reply are missing

    def worker_params(self, worker_rank: int) -> HostArray:
        """Return the parameters of the shard that a worker has after its last reply.

        They are known only with `keeps_sent_params`, or if replies are differences.
        """
        replica = self._replicas.get(worker_rank)
        return self.initial_params if replica is None else replica.params

    def encode_reply(self, worker_rank: int, reply_vector: HostArray) -> HostArray:
        """Return the reply that gives a worker `reply_vector`, or a vector near to it.

        The reply is the vector itself, or the bytes of a compressed difference.
        """
        if self.compressor == IDENTITY_COMPRESSOR:
            if self.keeps_sent_params:
                self._replicas[worker_rank] = WorkerReplica(reply_vector, None)
            return reply_vector
        known, dtype = self.worker_params(worker_rank), reply_vector.dtype.name
        payload, state = self.compressor.compress(reply_vector - known, self._compressor_state(worker_rank))
        wire_bytes = payload_to_bytes(payload)
        known = known + bytes_to_vector(self.compressor, wire_bytes, known.size, dtype)
        self._replicas[worker_rank] = WorkerReplica(known, state)
        return wire_bytes

    def copy_replicas(self) -> dict[int, WorkerReplicaState]:
        """Return what the encoder keeps of each worker, by rank."""
        return {
            rank: WorkerReplicaState(replica.params, replica.compressor_state)
            for rank, replica in self._replicas.items()
        }

    def restore_replicas(self, replicas: Mapping[int, WorkerReplicaState]) -> None:
        """Continue with what `copy_replicas` has returned."""
        self._replicas = {rank: WorkerReplica(*replica) for rank, replica in replicas.items()}

    def _compressor_state(self, worker_rank: int) -> CompressorState:
        replica = self._replicas.get(worker_rank)
        if replica is None:
            return self.compressor.init_state(self.initial_params.size, self.seed)
        return replica.compressor_state
