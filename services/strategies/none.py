"""Strategy for training on one worker without any exchange: the baseline of every speedup."""

from collections.abc import Iterator
from typing import Literal

from services.runtime.run_log import StepTimes
from services.schema.arrays import Vector
from services.schema.conflicts import Conflict
from services.strategies.base import (
    BytesPerStep,
    Gradient,
    PhaseStrategy,
    StepResult,
    StrategyContext,
    WorkerAlgorithm,
    WorkerContext,
    WorkerState,
)
from services.strategies.cost_model import CostModel, StepPrediction


class SingleWorker(PhaseStrategy):
    """Training on one worker without any exchange."""

    kind: Literal["none"] = "none"

    def conflicts(self, context: StrategyContext) -> Iterator[Conflict]:
        if context.workers != 1:
            yield Conflict((), f"strategy none trains on one worker, but the cluster has {context.workers}")

    def bytes_per_step(self, workers: int, entries: int, dtype: str) -> BytesPerStep:  # noqa: ARG002 - nothing is sent
        return BytesPerStep(workers=(0,))

    def predict(self, cost: CostModel) -> StepPrediction:
        return StepPrediction(compute_s=cost.compute_s, exchange_s=0.0, formula="t_c")

    def worker_algorithm(self, context: WorkerContext) -> "SingleWorkerAlgorithm":
        return SingleWorkerAlgorithm(context)


class SingleWorkerAlgorithm(WorkerAlgorithm):
    """Worker algorithm that updates the parameters with the worker's own gradient."""

    def init(self, params: Vector) -> WorkerState:
        return self.context.optimiser.init(params)

    async def step(
        self,
        step: int,  # noqa: ARG002 - every step is the same
        params: Vector,
        gradient: Gradient,
        state: WorkerState,
        times: StepTimes,
    ) -> StepResult:
        with times.measure("update"):
            return StepResult(*self.context.optimiser.step(params, gradient.mean, state))
