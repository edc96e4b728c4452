"""AD-PSGD: asynchronous decentralised SGD, in which pairs of workers average their parameters.

X. Lian, W. Zhang, C. Zhang, J. Liu, "Asynchronous decentralized parallel stochastic gradient descent", ICML 2018.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from services.collectives import TransferSchedule
from services.collectives.base import Transfer
from services.strategies.async_averaging.ad_psgd_worker import ActiveWorker, PassiveWorker
from services.strategies.async_averaging.group_client import GroupClient
from services.strategies.async_averaging.pair_prediction import predict_pair_step
from services.strategies.async_averaging.pairing import choose_passive_rank, list_active_ranks, list_passive_ranks
from services.strategies.async_averaging.passive_averaging import PassiveAveragingService
from services.strategies.base import (
    IDENTITY_COMPRESSOR,
    BytesPerStep,
    ExchangePattern,
    SinglePhaseStrategy,
    WorkerAlgorithm,
    WorkerContext,
)
from services.strategies.base.partner_byte_bounds import ByteRange, PartnerByteBounds
from services.strategies.base.training_quality import ASYNCHRONOUS_REASON, TrainingQuality, unguarded_quality
from services.strategies.cost_model import CostModel, StepTimePrediction


class AdPsgd(SinglePhaseStrategy):
    """AD-PSGD: in every step, each active worker averages its parameters with those of a random passive worker.

    Workers of even rank are active, those of odd rank passive. Passive workers never wait for an average, so averages
    cannot wait for each other in a circle. Each worker updates its own parameters with its own gradient and its own
    optimiser. An active worker computes its gradient before the average and applies it after the average. Averages may
    change the parameters of a passive worker while it computes; their number is the staleness of its gradient.
    Averaging does not change the mean of all workers' parameters. Evaluations use the parameters of worker 0; the
    result of the run is the mean over all workers. We differ from the paper: an average begins when the gradient is
    computed, not during its computation.
    """

    kind: Literal["ad_psgd"] = "ad_psgd"

    def describe_worker_exchange(self) -> ExchangePattern:
        return ExchangePattern(
            is_synchronous=False, has_equal_replicas=False, partner_byte_bounds=RandomPairByteBounds()
        )

    def describe_quality(self) -> TrainingQuality:
        return unguarded_quality(self.kind, ASYNCHRONOUS_REASON)

    def collective_schedule(self, worker_count: int) -> TransferSchedule:
        """Return the transfers of a step in which each active worker averages with a passive worker beside it.

        The pairs of a run are random, but on average they send as much as these.
        """
        if worker_count == 1:
            return TransferSchedule()
        pairs = [(rank, rank + 1 if rank + 1 < worker_count else rank - 1) for rank in list_active_ranks(worker_count)]
        pushes = tuple(Transfer(active, passive, 0, 1, "reduce") for active, passive in pairs)
        replies = tuple(Transfer(passive, active, 0, 1, "copy") for active, passive in pairs)
        return TransferSchedule(rounds=(pushes, replies))

    def sent_bytes_per_step(self, worker_count: int, parameter_count: int, dtype: str) -> BytesPerStep:
        """Return the mean payload bytes: the vector of active workers, and as many replies of passive workers."""
        vector_bytes = IDENTITY_COMPRESSOR.compressed_size_bytes(parameter_count, dtype)
        active, passive = list_active_ranks(worker_count), list_passive_ranks(worker_count)
        if not passive:
            return BytesPerStep(workers=(0.0,), replies=(0.0,))
        reply_bytes = vector_bytes * len(active) / len(passive)
        return BytesPerStep(
            workers=tuple(reply_bytes if rank in passive else float(vector_bytes) for rank in range(worker_count)),
            replies=tuple(reply_bytes if rank in passive else 0.0 for rank in range(worker_count)),
        )

    def predict_step_time(self, cost_model: CostModel) -> StepTimePrediction:
        return predict_pair_step(cost_model)

    def create_worker_algorithm(self, worker_context: WorkerContext) -> WorkerAlgorithm:
        client, names = GroupClient.of_worker(worker_context, 1, 1), worker_context.workers
        if worker_context.rank in list_active_ranks(len(names)):
            return ActiveWorker(worker_context, client)
        active_names = [names[rank] for rank in list_active_ranks(len(names))]
        service = PassiveAveragingService(worker_context.transport, worker_context.device, active_names)
        return PassiveWorker(worker_context, client, service)


@dataclass(frozen=True)
class RandomPairByteBounds(PartnerByteBounds):
    """Choice of random passive workers. It depends on the seed only, so the bytes follow from the numbers of steps."""

    def bound_sent_bytes(
        self, step_counts: Sequence[int], seed: int, entry_count: int, entry_bytes: float
    ) -> tuple[ByteRange, ...]:
        workers = len(step_counts)
        vectors = Counter[int]()  # that each worker sends, by rank
        for rank in list_active_ranks(workers) if workers > 1 else ():
            vectors[rank] += step_counts[rank]
            vectors.update(choose_passive_rank(seed, rank, step, workers) for step in range(step_counts[rank]))
        sent_bytes = (vectors[rank] * entry_count * entry_bytes for rank in range(workers))
        return tuple(ByteRange(count, count) for count in sent_bytes)
