"""Worker algorithm of partial all-reduce: local steps, and averages over groups of ready workers."""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from services.collectives import TransferSchedule
from services.collectives.execution.executor import GroupMember
from services.learning.optimisers import OptimiserState
from services.runtime.run_log import StepTimer
from services.schema.arrays import Vector
from services.strategies.async_averaging.group_client import GroupClient
from services.strategies.async_averaging.group_messages import WorkerGroup
from services.strategies.base import Gradient, StepResult, WorkerAlgorithm
from services.strategies.vector_sums import Summand, VectorSum


class PartialAllReduceState(NamedTuple):
    """State of a worker of partial all-reduce between steps."""

    optimiser_state: OptimiserState  # of its own optimiser
    samples: int = 0  # of all workers, as of this worker's last group


@dataclass(frozen=True)
class PartialAllReduceWorker(WorkerAlgorithm):
    """Worker algorithm of partial all-reduce.

    After every step on its own parameters, the worker reports that it is ready, gets a group, and averages its
    parameters with those of the group. The wait for the group counts as `wait`.
    """

    vector_sum: VectorSum  # over the members of a group
    group_client: GroupClient

    @property
    def receiver_names(self) -> tuple[str, ...]:
        return self.context.other_workers

    def initial_state(self, params: Vector) -> PartialAllReduceState:
        """Return the state before the first step, and start the service that forms groups if it runs on this node."""
        self.group_client.start_service()
        return PartialAllReduceState(self.context.updater.init_state(params))

    async def exchange_and_update(
        self, step: int, params: Vector, gradient: Gradient, worker_state: PartialAllReduceState, step_timer: StepTimer
    ) -> StepResult:
        with step_timer.measure_phase("update"):
            params, optimiser_state = self.context.updater.update_params(
                params, gradient.mean, worker_state.optimiser_state, worker_state.samples
            )
        with step_timer.measure_phase("wait"):
            group = await self.group_client.report_step(step, gradient.samples)
        if len(group.ranks) > 1:
            with step_timer.measure_phase("exchange"):
                params = await self._average_params(params, group)
        state = PartialAllReduceState(optimiser_state, group.samples)
        return StepResult(params, state, samples=group.samples, pending_samples=group.pending_samples)

    async def _average_params(self, params: Vector, group: WorkerGroup) -> Vector:
        """Return the mean of the parameters of a group; every member counts the same."""
        context, size = self.context, len(group.ranks)
        names = tuple(context.workers[rank] for rank in group.ranks)
        mean, _ = await self.vector_sum.add_vectors(
            GroupMember(context.transport, names, group.ranks.index(context.rank)),
            _plan_group_transfers(self.vector_sum, size),
            group.number,
            Summand(params, 1 / size),
            None,
            context.device,
        )
        return context.device.to_device(mean)

    async def leave(self, leave_step: int, step_result: StepResult, step_timer: StepTimer) -> Vector:  # noqa: ARG002 - nothing is unsent
        await self.group_client.report_leaving(leave_step)
        return step_result.params


@cache
def _plan_group_transfers(vector_sum: VectorSum, group_size: int) -> TransferSchedule:
    return vector_sum.plan_transfers(group_size)
