"""Worker algorithms of AD-PSGD: of active workers, which start averages, and of passive workers."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from services.learning.optimisers import OptimiserState
from services.runtime.run_log import StepTimer
from services.runtime.transport import Message, MessageKind, MessageTag
from services.runtime.vector_messages import receive_remaining_pieces, send_vector
from services.schema.arrays import Vector
from services.strategies.async_averaging.group_client import GroupClient
from services.strategies.async_averaging.pairing import choose_passive_rank, list_passive_ranks
from services.strategies.async_averaging.passive_averaging import PassiveAveragingService, mean_of_pair
from services.strategies.base import Gradient, StepResult, WorkerAlgorithm


class AdPsgdState(NamedTuple):
    """State of a worker of AD-PSGD between steps."""

    optimiser_state: OptimiserState  # of its own optimiser
    samples: int = 0  # of all workers, as of this worker's last step
    average_counts: tuple[int, ...] = ()  # of an active worker: averages with each passive worker so far
    seen_averages: int = 0  # of a passive worker: averages that had changed the parameters that it computes with


@dataclass(frozen=True)
class ActiveWorker(WorkerAlgorithm):
    """Worker algorithm of an active worker.

    The gradient is computed with the parameters before the average, and applied to the average.
    """

    group_client: GroupClient  # of groups of one worker: it counts the samples of all workers

    @property
    def _passive_ranks(self) -> range:
        return list_passive_ranks(len(self.context.workers))

    @property
    def receiver_names(self) -> tuple[str, ...]:
        return self.context.other_workers

    def initial_state(self, params: Vector) -> AdPsgdState:
        """Return the state before the first step, and start the service that counts samples if it runs here."""
        self.group_client.start_service()
        counts = (0,) * len(self._passive_ranks)
        return AdPsgdState(self.context.updater.init_state(params), average_counts=counts)

    async def exchange_and_update(
        self, step: int, params: Vector, gradient: Gradient, worker_state: AdPsgdState, step_timer: StepTimer
    ) -> StepResult:
        state = worker_state
        if self._passive_ranks:
            with step_timer.measure_phase("exchange"):
                params, state = await self._average_with_passive_worker(step, params, state)
        with step_timer.measure_phase("update"):
            params, optimiser_state = self.context.updater.update_params(
                params, gradient.mean, state.optimiser_state, state.samples
            )
        with step_timer.measure_phase("wait"):
            count = await self.group_client.report_step(step, gradient.samples)
        state = state._replace(optimiser_state=optimiser_state, samples=count.samples)
        return StepResult(params, state, 0.0, count.samples, count.pending_samples)

    async def _average_with_passive_worker(
        self, step: int, params: Vector, state: AdPsgdState
    ) -> tuple[Vector, AdPsgdState]:
        """Return the mean with the parameters of a random passive worker, which gets the same mean."""
        context, transport = self.context, self.context.transport
        rank = choose_passive_rank(context.seed, context.rank, step, len(context.workers))
        name, index = context.workers[rank], self._passive_ranks.index(rank)
        number, own = state.average_counts[index], np.array(context.device.to_host(params))
        await send_vector(transport, name, Message(MessageTag(number, MessageKind.PUSH)), own)
        first_piece = await transport.receive(name, MessageTag(number, MessageKind.REPLY))
        received = np.empty(own.shape, own.dtype)
        await receive_remaining_pieces(transport, name, first_piece, received)
        counts = (*state.average_counts[:index], number + 1, *state.average_counts[index + 1 :])
        return mean_of_pair(params, context.device.to_device(received)), state._replace(average_counts=counts)

    async def leave(self, leave_step: int, step_result: StepResult, step_timer: StepTimer) -> Vector:  # noqa: ARG002 - nothing is unsent
        """Inform all passive workers that this worker starts no more averages, and report that it has finished."""
        state: AdPsgdState = step_result.state
        for rank, number in zip(self._passive_ranks, state.average_counts, strict=True):
            leave = Message(MessageTag(number, MessageKind.LEAVE))
            await self.context.transport.send(self.context.workers[rank], leave)
        await self.group_client.report_leaving(leave_step)
        return step_result.params


@dataclass(frozen=True)
class PassiveWorker(WorkerAlgorithm):
    """Worker algorithm of a passive worker.

    Active workers change the parameters while the worker computes. Its gradient is then stale by the number of these
    averages.
    """

    group_client: GroupClient
    service: PassiveAveragingService

    @property
    def receiver_names(self) -> tuple[str, ...]:
        return self.context.other_workers

    def initial_state(self, params: Vector) -> AdPsgdState:
        """Return the state before the first step, and start to average parameters with active workers."""
        self.service.start(params)
        return AdPsgdState(self.context.updater.init_state(params))

    async def exchange_and_update(
        self,
        step: int,
        params: Vector,  # noqa: ARG002 - averages have changed them since
        gradient: Gradient,
        worker_state: AdPsgdState,
        step_timer: StepTimer,
    ) -> StepResult:
        self.service.raise_error()
        staleness = self.service.average_count - worker_state.seen_averages
        with step_timer.measure_phase("update"):
            self.service.params, optimiser_state = self.context.updater.update_params(
                self.service.current_params, gradient.mean, worker_state.optimiser_state, worker_state.samples
            )
        with step_timer.measure_phase("wait"):
            count = await self.group_client.report_step(step, gradient.samples)
        state = AdPsgdState(optimiser_state, count.samples, seen_averages=self.service.average_count)
        return StepResult(self.service.current_params, state, staleness, count.samples, count.pending_samples)

    async def leave(self, leave_step: int, step_result: StepResult, step_timer: StepTimer) -> Vector:  # noqa: ARG002 - averages have changed the parameters since
        """Report that this worker has finished, and respond to active workers until all of them have left."""
        await self.group_client.report_leaving(leave_step)
        await self.service.serve_until_active_workers_leave()
        return self.service.current_params
