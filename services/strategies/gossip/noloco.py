"""NoLoCo: DiLoCo without all-reduce. Workers train alone, and an exchange averages with one random partner.

J. Kolehmainen, N. Blagoev, J. Donaghy, O. Ersoy, C. Nies, "NoLoCo: No-all-reduce low communication training method for
large models", arXiv:2506.10911, 2025.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from services.collectives import TransferSchedule
from services.learning.optimisers import OptimiserState
from services.runtime.run_log import StepTimer
from services.schema.arrays import Vector
from services.schema.conflicts import KeyConflict
from services.strategies.base import (
    BytesPerStep,
    ExchangePattern,
    Gradient,
    ScenarioSizes,
    StepResult,
    WorkerAlgorithm,
    WorkerContext,
)
from services.strategies.base.training_quality import TrainingQuality
from services.strategies.cost_model import CostModel, StepTimePrediction
from services.strategies.gossip.base import GossipStrategy
from services.strategies.gossip.evaluation_mean import EvaluationMean
from services.strategies.gossip.mixing import MixingRound, mix_vectors, pair_round, plan_mixing_transfers
from services.strategies.gossip.neighbour_exchange import count_sent_bytes, exchange_with_neighbours
from services.strategies.gossip.prediction import GossipTimeline, format_exchange_seconds
from services.strategies.local_training.periodic_exchange import (
    NO_SAMPLES,
    SampleCounts,
    find_period_conflicts,
    is_last_step,
)
from services.strategies.random_partners import draw_pairs


class NoLoCo(GossipStrategy):
    """NoLoCo: local training, and an outer update with one random partner every `period` steps.

    With the slow parameters φ_i of worker i, their change Δ_i during the local steps, and means over the pair:
    δ_i ← α·δ_i + β·mean(Δ) - pull·(φ_i - mean(φ)), φ_i ← φ_i + δ_i. The local steps continue from φ_i. All workers draw
    the same pairs from the seed of the trial. Δ_i counts n times the worker's share of the samples, which differs from
    1 only where shares differ. The mean of φ over all workers changes as under an outer optimiser with momentum α and
    the rate β. Evaluations use this mean. The last step of the budget ends with an exchange, too.

    We differ: partners send one vector, β·Δ + pull·φ, instead of Δ and φ, because the update needs only the sum.
    """

    kind: Literal["noloco"] = "noloco"
    period: PositiveInt = Field(description="local steps from one exchange to the next")
    rate: PositiveFloat = Field(0.7, description="rate β of the outer update")
    momentum: float = Field(0.5, ge=0, lt=1, description="momentum α of the outer update")
    pull: float = Field(
        0.7, gt=0, le=1, description="strength with which partners pull their slow parameters to the mean of the pair"
    )

    def find_scenario_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        yield from super().find_scenario_conflicts(scenario_sizes)
        yield from find_period_conflicts(self.period, scenario_sizes)

    def explain_worker_count_conflict(self, worker_count: int) -> str:
        if worker_count == 1 or worker_count % 2 == 0:
            return ""
        why = f"noloco exchanges in pairs, but the number of workers ({worker_count}) is odd"
        return f"{why}; write {worker_count - 1} or {worker_count + 1}"

    def describe_worker_exchange(self) -> ExchangePattern:
        return replace(super().describe_worker_exchange(), exchange_period=self.period)

    def describe_quality(self) -> TrainingQuality:
        return super().describe_quality().after_local_steps(self.period)

    def collective_schedule(self, worker_count: int) -> TransferSchedule:
        """Return the transfers of one exchange, with pairs of neighbouring ranks instead of random ones."""
        return plan_mixing_transfers([_neighbour_pair_round(worker_count)])

    def sent_bytes_per_step(self, worker_count: int, parameter_count: int, dtype: str) -> BytesPerStep:
        return count_sent_bytes(
            [_neighbour_pair_round(worker_count)], parameter_count, dtype, steps_per_exchange=self.period
        )

    def predict_step_time(self, cost_model: CostModel) -> StepTimePrediction:
        worker_count = len(cost_model.workers)
        timeline = GossipTimeline(
            cost_model,
            lambda exchange_number: _draw_pair_round(cost_model.seed, exchange_number, worker_count),
            self.period,
            overlaps_compute=False,
            exchange_formula=format_exchange_seconds(min(1, worker_count - 1)),
        )
        return timeline.predict_step_time(self._evaluation_mean.predict_seconds(cost_model))

    def create_worker_algorithm(self, worker_context: WorkerContext) -> "NoLoCoWorker":
        return NoLoCoWorker(worker_context, self.period, self.rate, self.momentum, self.pull, self._evaluation_mean)


def _neighbour_pair_round(worker_count: int) -> MixingRound:
    """Return a round of neighbouring pairs, which has as many messages as one of random pairs."""
    last = worker_count - 1
    return pair_round(tuple(min(rank ^ 1, last) for rank in range(worker_count)))


def _draw_pair_round(seed: int, exchange_number: int, worker_count: int) -> MixingRound:
    return pair_round(draw_pairs(seed, exchange_number, worker_count))


@dataclass(frozen=True)
class NoLoCoState:
    """State of a NoLoCo worker between steps."""

    optimiser_state: OptimiserState  # of its own optimiser
    slow_params: Vector  # φ, from which the local steps since the last exchange started
    outer_momentum: Vector  # δ
    exchange_number: int = 0  # of the next exchange
    local_steps: int = 0  # since the last exchange
    samples: SampleCounts = NO_SAMPLES  # since the last exchange


@dataclass(frozen=True)
class NoLoCoWorker(WorkerAlgorithm):
    """Worker algorithm of NoLoCo: local steps, and an outer update with a random partner."""

    period: int
    rate: float
    momentum: float
    pull: float
    evaluation_mean: EvaluationMean

    @property
    def receiver_names(self) -> tuple[str, ...]:
        return self.context.other_workers

    def initial_state(self, params: Vector) -> NoLoCoState:
        return NoLoCoState(self.context.updater.init_state(params), params, params - params)

    async def exchange_and_update(
        self, step: int, params: Vector, gradient: Gradient, worker_state: NoLoCoState, step_timer: StepTimer
    ) -> StepResult:
        with step_timer.measure_phase("update"):
            params, optimiser_state = self.context.updater.update_params(
                params, gradient.mean, worker_state.optimiser_state, gradient.samples_before
            )
        state = replace(
            worker_state,
            optimiser_state=optimiser_state,
            local_steps=worker_state.local_steps + 1,
            samples=worker_state.samples.add_step(gradient.samples, self.context.batch_size(step)),
        )
        if state.local_steps == self.period or is_last_step(self.context, step, gradient):
            state = await self._exchange(params, state, step_timer)
            params = state.slow_params
        average_params = self.evaluation_mean.prepare(self.context, step, state.slow_params)
        return StepResult(params, state, eval_params=state.slow_params, average_params=average_params)

    async def _exchange(self, params: Vector, state: NoLoCoState, step_timer: StepTimer) -> NoLoCoState:
        """Return the state after an exchange with the partner, and the outer update."""
        context, slow = self.context, state.slow_params
        mixing_round = _draw_pair_round(context.seed, state.exchange_number, len(context.workers))
        with step_timer.measure_phase("update"):
            change_weight = self.rate * len(context.workers) * state.samples.own_share
            own = _multiply_and_add(change_weight, params - slow, self.pull, slow)
        with step_timer.measure_phase("exchange"):
            vectors = await exchange_with_neighbours(context, state.exchange_number, mixing_round, own)
        with step_timer.measure_phase("update"):
            pair_mean = mix_vectors(mixing_round.weights[context.rank], vectors)
            outer_change = _multiply_and_add(self.momentum, state.outer_momentum, -self.pull, slow) + pair_mean
        return NoLoCoState(state.optimiser_state, slow + outer_change, outer_change, state.exchange_number + 1)


def _multiply_and_add(first_factor: float, first: Vector, second_factor: float, second: Vector) -> Vector:
    """Return the sum of two vectors, each multiplied by a factor."""
    number = first.dtype.type
    return first * number(first_factor) + second * number(second_factor)
