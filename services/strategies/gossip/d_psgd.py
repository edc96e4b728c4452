"""Decentralised parallel SGD (D-PSGD): workers mix their parameters with those of neighbours in every step.

X. Lian, C. Zhang, H. Zhang, C.-J. Hsieh, W. Zhang, J. Liu, "Can decentralized algorithms outperform centralized
algorithms? A case study for decentralized parallel stochastic gradient descent", NIPS 2017.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field

from services.collectives import TransferSchedule
from services.learning.optimisers import OptimiserState
from services.runtime.run_log import StepTimer
from services.schema.arrays import Vector
from services.schema.conflicts import KeyConflict, prepend_parent_key
from services.strategies.base import (
    BytesPerStep,
    Gradient,
    ScenarioSizes,
    StepResult,
    WorkerAlgorithm,
    WorkerContext,
)
from services.strategies.cost_model import CostModel, StepTimePrediction
from services.strategies.gossip.base import GossipStrategy
from services.strategies.gossip.evaluation_mean import EvaluationMean
from services.strategies.gossip.mixing import MixingRound, list_target_ranks, mix_vectors, plan_mixing_transfers
from services.strategies.gossip.neighbour_exchange import count_sent_bytes, exchange_with_neighbours
from services.strategies.gossip.prediction import GossipTimeline, format_exchange_seconds
from services.strategies.gossip.topologies import AnyGossipTopology, RingGossip


class DPsgd(GossipStrategy):
    """Decentralised parallel SGD: x_i ← Σ_j W_ij x_j - η g_i(x_i), with the doubly stochastic weights of a topology.

    Every worker keeps its own parameters and the state of its own optimiser, and there is no global barrier. The
    optimiser updates the mixed parameters with the gradient at the worker's own parameters, so the exchange runs beside
    the compute. With `order: update_first`, workers mix updated parameters: x_i ← Σ_j W_ij (x_j - η g_j(x_j)); with a
    complete topology, this is the average of every step. A gradient counts n times the worker's share of the batch,
    which differs from 1 only where shares differ. Evaluations use the mean of the workers' parameters.
    """

    kind: Literal["d_psgd"] = "d_psgd"
    topology: AnyGossipTopology = Field(RingGossip(), description="with whom each worker mixes its parameters")
    order: Literal["mix_first", "update_first"] = Field(
        "mix_first",
        description="mix_first: workers exchange the parameters before the update, during the compute; update_first: "
        "they exchange updated parameters, after the compute",
    )

    def find_scenario_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        yield from super().find_scenario_conflicts(scenario_sizes)
        if conflict := self.topology.find_conflict(scenario_sizes.workers):
            yield from prepend_parent_key("topology", [conflict])

    def collective_schedule(self, worker_count: int) -> TransferSchedule:
        """Return the transfers of all rounds of mixing: the strategy has no collective, except before evaluations."""
        return plan_mixing_transfers(self.topology.mixing_rounds(worker_count))

    def sent_bytes_per_step(self, worker_count: int, parameter_count: int, dtype: str) -> BytesPerStep:
        return count_sent_bytes(self.topology.mixing_rounds(worker_count), parameter_count, dtype, steps_per_exchange=1)

    def predict_step_time(self, cost_model: CostModel) -> StepTimePrediction:
        rounds = self.topology.mixing_rounds(len(cost_model.workers))
        vector_count = max(len(rounds[0].target_ranks(rank)) for rank in range(len(cost_model.workers)))
        timeline = GossipTimeline(
            cost_model,
            lambda exchange_number: rounds[exchange_number % len(rounds)],
            steps_per_exchange=1,
            overlaps_compute=self.order == "mix_first",
            exchange_formula=format_exchange_seconds(vector_count),
        )
        return timeline.predict_step_time(self._evaluation_mean.predict_seconds(cost_model))

    def create_worker_algorithm(self, worker_context: WorkerContext) -> "DPsgdWorker":
        rounds = self.topology.mixing_rounds(len(worker_context.workers))
        return DPsgdWorker(worker_context, rounds, self.order == "mix_first", self._evaluation_mean)


@dataclass(frozen=True)
class DPsgdState:
    """State of a D-PSGD worker between steps."""

    optimiser_state: OptimiserState  # of its own optimiser
    # Exchange that overlaps with the compute of the current step; returns the vectors to mix, by rank.
    exchange: "asyncio.Task[dict[int, Vector]] | None" = None


@dataclass(frozen=True)
class DPsgdWorker(WorkerAlgorithm):
    """Worker algorithm of D-PSGD: mixes the parameters of neighbours with its own, and updates them."""

    rounds: tuple[MixingRound, ...]
    mixes_first: bool
    evaluation_mean: EvaluationMean

    @property
    def receiver_names(self) -> tuple[str, ...]:
        context = self.context
        for_evaluations = self.evaluation_mean.list_target_ranks(len(context.workers), context.rank)
        targets = {*list_target_ranks(self.rounds, context.rank), *for_evaluations}
        return tuple(context.workers[rank] for rank in sorted(targets))

    def initial_state(self, params: Vector) -> DPsgdState:
        return DPsgdState(self.context.updater.init_state(params))

    def begin_step(self, step: int, params: Vector, worker_state: DPsgdState) -> DPsgdState:
        if not self.mixes_first:
            return worker_state
        return replace(worker_state, exchange=asyncio.create_task(self._exchange(step, params)))

    async def cancel_exchange(self, worker_state: DPsgdState) -> None:
        if worker_state.exchange is not None:
            worker_state.exchange.cancel()
            await asyncio.wait({worker_state.exchange})

    def _exchange(self, step: int, vector: Vector) -> Coroutine[None, None, dict[int, Vector]]:
        return exchange_with_neighbours(self.context, step, self._mixing_round(step), vector)

    def _mixing_round(self, step: int) -> MixingRound:
        return self.rounds[step % len(self.rounds)]

    async def exchange_and_update(
        self, step: int, params: Vector, gradient: Gradient, worker_state: DPsgdState, step_timer: StepTimer
    ) -> StepResult:
        if worker_state.exchange is not None:
            with step_timer.measure_phase("exchange"):
                vectors = await worker_state.exchange
            with step_timer.measure_phase("update"):
                mixed = self._mix(step, vectors)
                params, optimiser_state = self._update(step, mixed, gradient, worker_state.optimiser_state)
        else:
            with step_timer.measure_phase("update"):
                params, optimiser_state = self._update(step, params, gradient, worker_state.optimiser_state)
            with step_timer.measure_phase("exchange"):
                vectors = await self._exchange(step, params)
            with step_timer.measure_phase("update"):
                params = self._mix(step, vectors)
        average_params = self.evaluation_mean.prepare(self.context, step, params)
        return StepResult(params, DPsgdState(optimiser_state), average_params=average_params)

    def _mix(self, step: int, vectors: dict[int, Vector]) -> Vector:
        return mix_vectors(self._mixing_round(step).weights[self.context.rank], vectors)

    def _update(
        self, step: int, params: Vector, gradient: Gradient, optimiser_state: OptimiserState
    ) -> tuple[Vector, OptimiserState]:
        """Return the parameters after the worker's own update; the mean update is that of the whole batch."""
        weight = len(self.context.workers) * gradient.samples / self.context.batch_size(step)
        mean = gradient.mean if weight == 1 else gradient.mean * gradient.mean.dtype.type(weight)
        return self.context.updater.update_params(params, mean, optimiser_state, gradient.samples_before)
