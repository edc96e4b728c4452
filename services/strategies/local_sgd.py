"""Local SGD strategy: workers train separately and average their parameters regularly.

Each worker trains its own parameters, and every few steps all workers average them. S. U. Stich, "Local SGD converges
fast and communicates little", ICLR 2019; weighted by samples as in H. B. McMahan et al., "Communication-efficient
learning of deep networks from decentralized data" (FedAvg), AISTATS 2017.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, PositiveInt

from services.collectives import AnyCollective, NetworkAndModelSizes, Ring, TransferSchedule
from services.collectives.execution.executor import all_reduce
from services.compressors import AnyCompressor, Compressor, IdentityCompressor
from services.learning.batch_balance import AnyBatchBalance, UniformBalance
from services.learning.optimisers import OptimiserState
from services.runtime.run_log import StepTimer
from services.schema.arrays import Vector
from services.schema.conflicts import KeyConflict
from services.strategies.all_reduce import AllReduce
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
from services.strategies.cost_model import CostModel, StepTimePrediction


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
    compress: AnyCompressor = Field(IdentityCompressor(), description="number format of vectors sent at every hop")
    balance: AnyBatchBalance = Field(UniformBalance(), description=BALANCE_DESCRIPTION)

    @property
    def _averaging_strategy(self) -> AllReduce:
        """All-reduce strategy that averages the parameters of the workers."""
        return AllReduce(collective=self.collective, compress=self.compress)

    def find_scenario_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        yield from self._averaging_strategy.find_scenario_conflicts(scenario_sizes)
        yield from find_balance_conflicts(self.balance, scenario_sizes, self.period)
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
        return ExchangePattern(exchange_period=self.period, compressor=self.compress, balance=self.balance)

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
        return LocalSgdWorker(worker_context, self.period, self.compress)


@dataclass(frozen=True)
class LocalSgdState:
    """State of a local SGD worker between steps."""

    optimiser_state: OptimiserState  # of its own optimiser
    own_samples: int = 0  # since the last exchange
    all_samples: int = 0  # of all workers, since the last exchange


@dataclass(frozen=True)
class LocalSgdWorker(WorkerAlgorithm):
    """Worker algorithm of local SGD: updates the worker's own parameters.

    The worker averages its parameters with those of all workers every `period` steps.
    """

    period: int
    compressor: Compressor

    def initial_state(self, params: Vector) -> LocalSgdState:
        return LocalSgdState(self.context.updater.init_state(params))

    async def exchange_and_update(
        self, step: int, params: Vector, gradient: Gradient, worker_state: LocalSgdState, step_timer: StepTimer
    ) -> StepResult:
        context = self.context
        with step_timer.measure_phase("update"):
            params, optimiser_state = context.updater.update_params(
                params, gradient.mean, worker_state.optimiser_state, gradient.samples_before
            )
        own_samples = worker_state.own_samples + gradient.samples
        all_samples = worker_state.all_samples + context.batch_size(step)
        if (step + 1) % self.period:
            return StepResult(params, LocalSgdState(optimiser_state, own_samples, all_samples))
        with step_timer.measure_phase("exchange"):
            host = context.device.to_host(params)
            mean = host * host.dtype.type(own_samples / all_samples)
            number, schedule, compressor = step // self.period, context.schedule, self.compressor
            await all_reduce(context.transport, context.workers, context.rank, schedule, number, mean, compressor)
            return StepResult(context.device.to_device(mean), LocalSgdState(optimiser_state))
