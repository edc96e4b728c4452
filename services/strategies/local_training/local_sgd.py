"""Local SGD strategy: workers train separately and average their parameters regularly.

Each worker trains its own parameters, and every few steps all workers average them. S. U. Stich, "Local SGD converges
fast and communicates little", ICLR 2019; weighted by samples as in H. B. McMahan et al., "Communication-efficient
learning of deep networks from decentralized data" (FedAvg), AISTATS 2017.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, Self

from pydantic import Field, PositiveInt

from services.collectives import AnyCollective, NetworkAndModelSizes, Ring, TransferSchedule
from services.collectives.all_gather import AnyAllGather, RingAllGather
from services.compressors import AnyCompressor, CompressorState, IdentityCompressor
from services.learning.batch_balance import AnyBatchBalance, UniformBalance
from services.learning.optimisers import OptimiserState
from services.runtime.run_log import StepTimer
from services.schema.arrays import Vector
from services.schema.conflicts import KeyConflict
from services.strategies.all_reduce import AllReduce, combine_all_reduce
from services.strategies.balance_conflicts import BALANCE_DESCRIPTION, find_balance_conflicts
from services.strategies.base import (
    BytesPerStep,
    ExchangePattern,
    Gradient,
    ScenarioSizes,
    SinglePhaseStrategy,
    StepResult,
    WorkerAlgorithm,
    WorkerContext,
    average_bytes_per_step,
)
from services.strategies.base.training_quality import TrainingQuality, quality_of_sums
from services.strategies.cost_model import CostModel, StepTimePrediction
from services.strategies.local_training.periodic_exchange import (
    NO_SAMPLES,
    SampleCounts,
    find_compressor_conflicts,
    find_period_conflicts,
    is_last_step,
    sum_over_workers,
)
from services.strategies.vector_sums import VectorSum


class LocalSgd(SinglePhaseStrategy):
    """Local SGD: one all-reduce of the parameters every `period` steps.

    With a period of 1, it equals all_reduce apart from rounding, if updates are linear in the gradient and all workers
    have equal shares of a batch. The last step of the budget ends with an exchange, too. An evaluation between two
    exchanges uses the parameters of the last exchange, which all workers have in common.
    """

    kind: Literal["local_sgd"] = "local_sgd"
    period: PositiveInt = Field(description="local steps from one exchange to the next")
    collective: AnyCollective = Field(default=Ring(), description="algorithm that sums the parameters")
    compress: AnyCompressor = Field(
        default=IdentityCompressor(),
        description="number format of vectors on the wire; compressors that compress whole vectors get the difference "
        "of the parameters to those after the last exchange",
    )
    gather: AnyAllGather = Field(
        default=RingAllGather(),
        description="all-gather of compressed vectors, for compressors whose vectors cannot be added",
    )
    average_optimiser_state: bool = Field(
        default=False,
        description="whether an exchange also averages the vectors of the optimiser's state, such as momenta; false: "
        "every worker keeps its own",
    )
    balance: AnyBatchBalance = Field(UniformBalance(), description=BALANCE_DESCRIPTION)

    @property
    def _averaging_strategy(self) -> AllReduce:
        """All-reduce strategy that averages the parameters of the workers."""
        return combine_all_reduce(self.collective, self.compress, self.gather)

    def find_scenario_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        yield from self._averaging_strategy.find_scenario_conflicts(scenario_sizes)
        yield from find_period_conflicts(self.period, scenario_sizes)
        yield from find_compressor_conflicts(
            self.kind, self.compress, averages_optimiser_state=self.average_optimiser_state
        )
        yield from find_balance_conflicts(self.balance, scenario_sizes, self.period)

    def resolve_auto_collective(
        self, network_and_model_sizes: NetworkAndModelSizes, cost_model: CostModel
    ) -> tuple[Self, dict[str, float]]:
        resolved, exchange_s = self._averaging_strategy.resolve_auto_collective(network_and_model_sizes, cost_model)
        strategy = self.model_copy(update={"collective": resolved.collective, "compress": resolved.compress})
        return strategy, {kind: seconds / self.period for kind, seconds in exchange_s.items()}

    def describe_worker_exchange(self) -> ExchangePattern:
        return ExchangePattern(
            has_equal_replicas=False,
            exchange_period=self.period,
            compressor=self.compress,
            balance=self.balance,
            includes_optimiser_state=self.average_optimiser_state,
        )

    def describe_quality(self) -> TrainingQuality:
        return quality_of_sums(self.compress).after_local_steps(self.period)

    def collective_schedule(self, worker_count: int) -> TransferSchedule:
        return self._averaging_strategy.collective_schedule(worker_count)

    def sent_bytes_per_step(self, worker_count: int, parameter_count: int, dtype: str) -> BytesPerStep:
        exchange = self._averaging_strategy.sent_bytes_per_step(worker_count, parameter_count, dtype)
        return BytesPerStep(workers=tuple(average_bytes_per_step(int(size), self.period) for size in exchange.workers))

    def predict_step_time(self, cost_model: CostModel) -> StepTimePrediction:
        """Return the predicted step time of local SGD.

        It is the step time of all_reduce, with the exchange time divided by `period`. An exchange begins when the
        worker that is slowest over the steps of the round has computed them. The vectors of an optimiser's state take
        as long as the parameters.
        """
        prediction = self._averaging_strategy.predict_averaging_step_time(cost_model, self.period)
        vectors, formula = cost_model.vectors_per_exchange, prediction.formula.removeprefix("t_c + ")
        factor = f"{vectors}·" if vectors > 1 else ""
        changes = {"exchange_s": prediction.exchange_s * vectors, "formula": f"t_c + {factor}({formula})/τ"}
        return prediction.model_copy(update=changes)

    def create_worker_algorithm(self, worker_context: WorkerContext) -> "LocalSgdWorker":
        return LocalSgdWorker(
            worker_context, self.period, self._averaging_strategy.vector_sum, self.average_optimiser_state
        )


@dataclass(frozen=True)
class LocalSgdState:
    """State of a local SGD worker between steps."""

    optimiser_state: OptimiserState  # of its own optimiser
    compressor_state: CompressorState
    common_params: Vector  # parameters of all workers after the last exchange
    exchange_number: int = 0  # of the next exchange
    local_steps: int = 0  # since the last exchange
    samples: SampleCounts = NO_SAMPLES  # since the last exchange


@dataclass(frozen=True)
class LocalSgdWorker(WorkerAlgorithm):
    """Worker algorithm of local SGD: updates the worker's own parameters.

    The worker averages its parameters with those of all workers every `period` steps, and in the last step. A
    compressor of whole vectors gets the difference to the common parameters: a sparse vector of parameters would set
    most parameters to 0.
    """

    period: int
    vector_sum: VectorSum
    averages_optimiser_state: bool

    def initial_state(self, params: Vector) -> LocalSgdState:
        return self.state_after_switch(params, 0, self.context.updater.init_state(params))

    def state_after_switch(self, params: Vector, update_count: int, optimiser_state: OptimiserState) -> LocalSgdState:
        compressor_state = self.vector_sum.init_state(params, self.context.compressor_seed)
        return LocalSgdState(optimiser_state, compressor_state, params, exchange_number=update_count)

    async def exchange_and_update(
        self, step: int, params: Vector, gradient: Gradient, worker_state: LocalSgdState, step_timer: StepTimer
    ) -> StepResult:
        with step_timer.measure_phase("update"):
            params, optimiser_state = self.context.updater.update_params(
                params, gradient.mean, worker_state.optimiser_state, gradient.samples_before
            )
        local = replace(
            worker_state,
            optimiser_state=optimiser_state,
            local_steps=worker_state.local_steps + 1,
            samples=worker_state.samples.add_step(gradient.samples, self.context.batch_size(step)),
        )
        if local.local_steps < self.period and not is_last_step(self.context, step, gradient):
            return StepResult(params, local, eval_params=local.common_params)
        with step_timer.measure_phase("exchange"):
            return await self._average_params(params, local)

    async def _average_params(self, params: Vector, local: LocalSgdState) -> StepResult:
        """Return the mean of the parameters of all workers, weighted by samples, as this worker's parameters."""
        optimiser_state, common_params = local.optimiser_state, local.common_params
        own_slots = optimiser_state.slots if self.averages_optimiser_state else ()
        own = params - common_params if self.vector_sum.is_for_differences else params
        (mean, *mean_slots), compressor_state = await sum_over_workers(
            self.context,
            self.vector_sum,
            local.exchange_number,
            [own, *own_slots],
            local.samples.own_share,
            local.compressor_state,
        )
        averaged = common_params + mean if self.vector_sum.is_for_differences else mean
        if self.averages_optimiser_state:
            optimiser_state = replace(optimiser_state, slots=tuple(mean_slots))
        next_state = LocalSgdState(optimiser_state, compressor_state, averaged, local.exchange_number + 1)
        return StepResult(averaged, next_state)
