"""State of the server of one shard between two pushes, for a checkpoint."""

from typing import NamedTuple

from services.compressors import CompressorState
from services.parameter_server.update_rules import UpdateRuleState
from services.schema.arrays import HostArray


class WorkerReplicaState(NamedTuple):
    """Parameters of the shard that a worker has, and the state of the compressor of its replies."""

    params: HostArray
    compressor_state: CompressorState


class ServerState(NamedTuple):
    """State of the server of one shard, while no push waits for an update or a reply."""

    update_rule_state: UpdateRuleState
    version: int  # of the parameters
    samples: int  # used for updates
    push_samples: dict[int, int]  # of each worker's last push, by rank
    next_steps: dict[int, int]  # by rank; workers that have left are missing
    replicas: dict[int, WorkerReplicaState]  # by rank; empty if the server keeps none
