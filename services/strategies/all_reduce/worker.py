"""Worker of the all-reduce strategy: sums the gradients of all workers and updates its own replica."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from services.compressors import CompressorState
from services.learning.optimisers import OptimiserState
from services.runtime.run_log import StepTimer
from services.schema.arrays import HostArray, Vector
from services.strategies.base import Gradient, StepResult, WorkerAlgorithm, WorkerState
from services.strategies.overlap import BucketReduction, Overlap
from services.strategies.overlap.reduction import BucketCollective
from services.strategies.overlap.timeline import end_of_next_forward_s
from services.strategies.vector_sums import Summand, VectorSum


class AllReduceState(NamedTuple):
    """State of an all-reduce worker between steps."""

    optimiser_state: OptimiserState
    compressor_state: CompressorState


@dataclass(frozen=True)
class AllReduceWorker(WorkerAlgorithm):
    """Worker algorithm of all-reduce: sums gradients and updates the worker's own replica.

    The sum contains the gradients of all workers.
    """

    vector_sum: VectorSum
    overlap: Overlap

    @property
    def sends_gradients_from_host(self) -> bool:
        return self.vector_sum.adds_in_host_memory

    def initial_state(self, params: Vector) -> AllReduceState:
        return self.state_after_switch(params, 0, self.context.updater.init_state(params))

    def state_after_switch(self, params: Vector, update_count: int, optimiser_state: OptimiserState) -> AllReduceState:  # noqa: ARG002
        """Return the worker's state after a strategy switch.

        It has the worker's complete copy of the optimiser's state. The compressor starts from a new state.
        """
        return AllReduceState(optimiser_state, self.vector_sum.init_state(params, self.context.compressor_seed))

    def worker_optimiser_state(self, worker_state: WorkerState) -> OptimiserState:
        state: AllReduceState = worker_state
        return state.optimiser_state

    def start_gradient_reduction(
        self, step: int, vector: HostArray, sample_count: int, step_timer: StepTimer
    ) -> BucketReduction | None:
        if not self.overlap.gradient_buckets:
            return None
        context, weight = self.context, sample_count / self.context.batch_size(step)
        collective = BucketCollective(context.group_member, context.schedule, self.vector_sum.compressor)
        return BucketReduction(collective, step, self.overlap, vector, weight, step_timer)

    async def exchange_and_update(
        self, step: int, params: Vector, gradient: Gradient, worker_state: AllReduceState, step_timer: StepTimer
    ) -> StepResult:
        context, samples_before = self.context, gradient.samples_before
        with step_timer.measure_phase("exchange"):
            if gradient.reduction is None:
                total, compressor_state = await self._sum_gradients(step, gradient, worker_state.compressor_state)
            else:
                total, compressor_state = await gradient.reduction.wait_for_sum(), worker_state.compressor_state
        with step_timer.measure_phase("update"):
            params, optimiser_state = context.updater.update_params(
                params, context.device.to_device(total), worker_state.optimiser_state, samples_before
            )
            return StepResult(
                params,
                AllReduceState(optimiser_state, compressor_state),
                end_of_next_forward_s=self._end_of_next_forward_s(gradient.reduction),
            )

    async def _sum_gradients(
        self, step: int, gradient: Gradient, compressor_state: CompressorState
    ) -> tuple[Vector, CompressorState]:
        """Return the mean gradient over the samples of all workers, and the compressor's state for the next sum."""
        context, weight = self.context, gradient.samples / self.context.batch_size(step)
        summand = Summand(gradient.mean, weight, gradient.host_mean)
        return await self.vector_sum.add_vectors(
            context.group_member, context.schedule, step, summand, compressor_state, context.device
        )

    def _end_of_next_forward_s(self, reduction: BucketReduction | None) -> Callable[[float], float] | None:
        """Return the function that gives the end of the next forward pass, if that pass begins during the exchange."""
        if reduction is None or not self.overlap.begins_next_step_early:
            return None
        return partial(end_of_next_forward_s, reduction.buckets, reduction.exchange_ends_s)
