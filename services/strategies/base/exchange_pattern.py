"""Pattern of a training phase: how it divides batches over the workers, and how workers exchange vectors."""

from dataclasses import dataclass

import numpy as np

from services.compressors import IdentityCompressor, VectorCompression
from services.learning.batch_balance import BatchBalance, UniformBalance
from services.learning.optimisers import AnyOptimiser
from services.strategies.base.partner_byte_bounds import PartnerByteBounds
from services.strategies.overlap import GradientBucket
from services.strategies.vector_sums.base import VectorSum

IDENTITY_COMPRESSOR = IdentityCompressor()
UNIFORM_BALANCE = UniformBalance()


@dataclass(frozen=True)
class ExchangePattern:
    """How a training phase divides batches over the workers and exchanges vectors, for example how often.

    The pattern is the same on every cluster.
    """

    # Whether all workers do the same number of steps, and stop for an evaluation after the same step.
    is_synchronous: bool = True
    # Whether all workers hold the same parameters, bit by bit, after every step.
    has_equal_replicas: bool = True
    # Whether a worker of a synchronous phase exchanges vectors only with neighbours, so that no step is a barrier.
    is_gossip: bool = False
    workers_run_optimiser: bool = True  # whether every worker runs the optimiser; otherwise the servers do
    exchange_period: int = 1  # steps from one exchange to the next; a worker that leaves in between exchanges once more
    exchanges_per_period: int = 1  # more where the steps from one exchange to the next differ within a period
    compressor: VectorCompression = IDENTITY_COMPRESSOR  # of the gradients or parameters that are exchanged
    sums_per_exchange: int = 1  # collectives, one after another, of an exchange without buckets
    gradient_buckets: tuple[GradientBucket, ...] = ()  # exchanged during the backward pass; empty: after it
    balance: BatchBalance = UNIFORM_BALANCE  # division of a batch over the workers
    includes_optimiser_state: bool = False  # whether an exchange also sends the vectors of the optimiser's state
    partner_byte_bounds: PartnerByteBounds | None = None  # if partners are chosen during the run; None: planned
    evaluation_sum: VectorSum | None = None  # averages the workers' parameters before an evaluation; None: not needed

    @property
    def has_compressor_state(self) -> bool:
        """Whether the compressor keeps a state, such as residuals, between two vectors."""
        return self.compressor.keeps_state

    def count_vectors(self, optimiser: AnyOptimiser) -> int:
        """Return the number of vectors of one exchange, given the optimiser of the workers."""
        return 1 + len(optimiser.init_state(np.zeros(1)).slots) if self.includes_optimiser_state else 1
