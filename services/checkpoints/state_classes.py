"""Classes of the records that the state of a node may contain.

A state tree stores a record with the name of its class. A reader finds the class in this list, and never imports a
module by a name from a file. A new algorithm that keeps a state of its own class adds the class here; a test runs every
strategy, compressor and optimiser and encodes its state.
"""

from typing import Any, TypeAlias

from services.checkpoints.other_worker_count import WorkerSnapshot
from services.compressors import CompressorSeed
from services.compressors.encoding.randomness import VectorRandomness
from services.compressors.sparsification.dgc import DgcState
from services.compressors.wrappers.error_feedback import ErrorFeedbackState
from services.compressors.wrappers.large_arrays_only import LargeArraysState
from services.learning.optimisers import OptimiserState
from services.parameter_server.server_state import ServerState, WorkerReplicaState
from services.parameter_server.update_rules import UpdateRuleState
from services.strategies.all_reduce.worker import AllReduceState
from services.strategies.async_averaging.ad_psgd_worker import AdPsgdState
from services.strategies.async_averaging.partial_all_reduce_worker import PartialAllReduceState
from services.strategies.gossip.d_psgd import DPsgdState
from services.strategies.gossip.noloco import NoLoCoState
from services.strategies.local_training.diloco.worker import DiLoCoState, FragmentState
from services.strategies.local_training.local_sgd import LocalSgdState
from services.strategies.local_training.periodic_exchange import SampleCounts
from services.strategies.server_based.easgd import EasgdWorkerState
from services.strategies.server_based.push_pull import PushState
from services.strategies.switching.rules import SwitchRuleState
from services.strategies.vector_sums.low_rank_sum import LowRankState

StateClass: TypeAlias = type[Any]  # a named tuple, or a frozen dataclass all of whose fields are arguments

STATE_CLASSES: tuple[StateClass, ...] = (
    AdPsgdState,
    AllReduceState,
    CompressorSeed,
    DPsgdState,
    DgcState,
    DiLoCoState,
    EasgdWorkerState,
    ErrorFeedbackState,
    FragmentState,
    LargeArraysState,
    LocalSgdState,
    LowRankState,
    NoLoCoState,
    OptimiserState,
    PartialAllReduceState,
    PushState,
    SampleCounts,
    ServerState,
    SwitchRuleState,
    UpdateRuleState,
    VectorRandomness,
    WorkerReplicaState,
    WorkerSnapshot,
)
