"""Mean of the parameters of all workers, which an all-reduce computes before an evaluation.

Workers of a gossip strategy never hold common parameters. The literature evaluates their mean.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from services.collectives import AnyCollective, NetworkAndModelSizes
from services.collectives.all_gather import RingAllGather
from services.compressors import IdentityCompressor
from services.schema.arrays import Vector
from services.strategies.all_reduce import AllReduce, combine_all_reduce
from services.strategies.base import WorkerContext
from services.strategies.cost_model import CostModel
from services.strategies.vector_sums import Summand


@dataclass(frozen=True)
class EvaluationMean:
    """All-reduce of the parameters before an evaluation. All workers get the same bits."""

    collective: AnyCollective

    @property
    def all_reduce(self) -> AllReduce:
        """All-reduce strategy whose exchange computes the mean."""
        return combine_all_reduce(self.collective, IdentityCompressor(), RingAllGather())

    def resolve_collective(self, model_sizes: NetworkAndModelSizes, cost_model: CostModel) -> AnyCollective:
        """Return the collective for this network and model, without `auto` and without missing fields."""
        resolved, _ = self.all_reduce.resolve_auto_collective(model_sizes, cost_model)
        return resolved.collective

    def predict_seconds(self, cost_model: CostModel) -> float:
        """Return the predicted seconds of the exchange before one evaluation."""
        return self.all_reduce.predict_averaging_step_time(cost_model, 1).exchange_s

    def list_target_ranks(self, worker_count: int, rank: int) -> frozenset[int]:
        """Return the ranks to which a rank sends messages."""
        return self.all_reduce.collective_schedule(worker_count).target_ranks(rank)

    def prepare(
        self, worker_context: WorkerContext, number: int, params: Vector
    ) -> Callable[[WorkerContext], Awaitable[Vector]] | None:
        """Return the exchange that averages the parameters of all workers; None for a single worker.

        Args:
            worker_context: resources of this worker.
            number: number of this exchange, different for each and equal on all workers.
            params: parameters of this worker, on the device.
        """
        return partial(self._average, number, params) if len(worker_context.workers) > 1 else None

    async def _average(self, number: int, params: Vector, worker_context: WorkerContext) -> Vector:
        """Return the mean of the parameters of all workers, on the device."""
        context, vector_sum = worker_context, self.all_reduce.vector_sum
        worker_count = len(context.workers)
        total, _ = await vector_sum.add_vectors(
            context.group_member,
            vector_sum.plan_transfers(worker_count),
            number,
            Summand(params, 1 / worker_count),
            vector_sum.init_state(params, context.compressor_seed),
            context.device,
        )
        return context.device.to_device(total)
