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
from services.learning.optimisers import OptimiserState
from services.runtime.run_log import StepTimer
from services.schema.arrays import Vector
from services.schema.conflicts import KeyConflict
from services.strategies.all_reduce import AllReduce
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
from services.strategies.cost_model import CostModel, StepTimePrediction
from services.strategies.vector_sums import Summand, VectorSum


class LocalSgd(SinglePhaseStrategy):
    """Local SGD: one all-reduce of the parameters every `period` steps.

    The period divides the steps between two evaluations, so all workers hold the same parameters whenever quality is
    measured. With a period of 1, it equals all_reduce apart from rounding, if updates are linear in the gradient and
    all workers have equal shares of a batch. The workers' optimiser states are not averaged.
    """

    kind: Literal["local_sgd"] = "local_sgd"
    period: PositiveInt = Field(
        description="local steps between two exchanges; must divide the steps between two evaluations, by default the "
        "steps of an epoch"
    )
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

    @property
    def _averaging_strategy(self) -> AllReduce:
        """All-reduce strategy that averages the parameters of the workers."""
        parts = {"collective": self.collective, "compress": self.compress, "gather": self.gather}
        return AllReduce().model_copy(update=parts)  # the parts have been validated

    def find_scenario_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        yield from self._averaging_strategy.find_scenario_conflicts(scenario_sizes)
        if self.compress.applies_momentum:
            why = f"compressor {self.compress.kind} adds momentum to gradients, but local_sgd exchanges parameters"
            yield KeyConflict(("compress",), f"{why}; use error_feedback with top_k")
        steps = scenario_sizes.steps_between_evaluations
        if steps % self.period:
            divisors = ", ".join(str(period) for period in range(1, steps + 1) if not steps % period)
            remedy = "use period 1" if steps == 1 else f"use one of {divisors}"
            if steps == scenario_sizes.steps_per_epoch:
                why = f"period {self.period} does not divide the {steps} steps of an epoch; {remedy}"
            else:
                why = (
                    f"period {self.period} does not divide the number of steps before every evaluation (their greatest "
                    f"common divisor is {steps}); {remedy}, or another workload.evaluate_every"
                )
            yield KeyConflict(("period",), why)

    def resolve_auto_collective(
        self, network_and_model_sizes: NetworkAndModelSizes, cost_model: CostModel
    ) -> tuple[Self, dict[str, float]]:
        resolved, exchange_s = self._averaging_strategy.resolve_auto_collective(network_and_model_sizes, cost_model)
        strategy = self.model_copy(update={"collective": resolved.collective})
        return strategy, {kind: seconds / self.period for kind, seconds in exchange_s.items()}

    def describe_worker_exchange(self) -> ExchangePattern:
        return ExchangePattern(exchange_period=self.period, compressor=self.compress)

    def collective_schedule(self, worker_count: int) -> TransferSchedule:
        return self._averaging_strategy.collective_schedule(worker_count)

    def sent_bytes_per_step(self, worker_count: int, parameter_count: int, dtype: str) -> BytesPerStep:
        exchange = self._averaging_strategy.sent_bytes_per_step(worker_count, parameter_count, dtype)
        return BytesPerStep(workers=tuple(average_bytes_per_step(int(size), self.period) for size in exchange.workers))

    def predict_step_time(self, cost_model: CostModel) -> StepTimePrediction:
        """Return the predicted step time of local SGD.

        It is the step time of all_reduce, with the exchange time divided by `period`. An exchange begins when the
        worker that is slowest over the steps of the round has computed them.
        """
        prediction = self._averaging_strategy.predict_averaging_step_time(cost_model, self.period)
        formula = prediction.formula.removeprefix("t_c + ")
        return prediction.model_copy(update={"formula": f"t_c + ({formula})/τ"})

    def create_worker_algorithm(self, worker_context: WorkerContext) -> "LocalSgdWorker":
        return LocalSgdWorker(worker_context, self.period, self._averaging_strategy.vector_sum)


@dataclass(frozen=True)
class LocalSgdState:
    """State of a local SGD worker between steps."""

    optimiser_state: OptimiserState  # of its own optimiser
    compressor_state: CompressorState
    common_params: Vector | None  # of all workers after the last exchange; None: they are not needed
    own_samples: int = 0  # since the last exchange
    all_samples: int = 0  # of all workers, since the last exchange


@dataclass(frozen=True)
class LocalSgdWorker(WorkerAlgorithm):
    """Worker algorithm of local SGD: updates the worker's own parameters.

    The worker averages its parameters with those of all workers every `period` steps. A compressor of whole vectors
    gets the difference to the common parameters: a sparse vector of parameters would set most parameters to 0.
    """

    period: int
    vector_sum: VectorSum

    def initial_state(self, params: Vector) -> LocalSgdState:
        compressor_state = self.vector_sum.init_state(params, self.context.compressor_seed)
        return LocalSgdState(
            self.context.updater.init_state(params), compressor_state, self._keep_common_params(params)
        )

    def _keep_common_params(self, params: Vector) -> Vector | None:
        """Return the parameters that all workers have, if the next exchange needs them."""
        return params if self.vector_sum.is_for_differences else None

    async def exchange_and_update(
        self, step: int, params: Vector, gradient: Gradient, worker_state: LocalSgdState, step_timer: StepTimer
    ) -> StepResult:
        context = self.context
        with step_timer.measure_phase("update"):
            params, optimiser_state = context.updater.update_params(
                params, gradient.mean, worker_state.optimiser_state, gradient.samples_before
            )
        local_state = replace(
            worker_state,
            optimiser_state=optimiser_state,
            own_samples=worker_state.own_samples + gradient.samples,
            all_samples=worker_state.all_samples + context.batch_size(step),
        )
        if (step + 1) % self.period:
            return StepResult(params, local_state)
        with step_timer.measure_phase("exchange"):
            return await self._average_params(step // self.period, params, local_state)

    async def _average_params(self, exchange_number: int, params: Vector, local_state: LocalSgdState) -> StepResult:
        """Return the mean of the parameters of all workers, weighted by samples, as this worker's parameters."""
        context, common_params = self.context, local_state.common_params
        own = params if common_params is None else params - common_params
        total, compressor_state = await self.vector_sum.add_vectors(
            context.group_member,
            context.schedule,
            exchange_number,
            Summand(own, local_state.own_samples / local_state.all_samples),
            local_state.compressor_state,
            context.device,
        )
        mean = context.device.to_device(total)
        averaged = mean if common_params is None else common_params + mean
        next_state = LocalSgdState(local_state.optimiser_state, compressor_state, self._keep_common_params(averaged))
        return StepResult(averaged, next_state)
