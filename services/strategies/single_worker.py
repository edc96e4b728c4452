"""Strategy for training on one worker without any exchange.

This strategy is the baseline of every speedup.
"""

from typing import Literal

from services.runtime.run_log import StepTimer
from services.schema.arrays import Vector
from services.strategies.base import (
    BytesPerStep,
    Gradient,
    SinglePhaseStrategy,
    StepResult,
    WorkerAlgorithm,
    WorkerContext,
    WorkerState,
)
from services.strategies.base.training_quality import EXACT_QUALITY, TrainingQuality
from services.strategies.cost_model import CostModel, StepTimePrediction


class SingleWorker(SinglePhaseStrategy):
    """Strategy that trains on one worker and exchanges nothing."""

    kind: Literal["none"] = "none"

    def explain_worker_count_conflict(self, worker_count: int) -> str:
        if worker_count == 1:
            return ""
        return f"its kind, none, trains on one worker only, but the number of workers is {worker_count}; write 1"

    def describe_quality(self) -> TrainingQuality:
        return EXACT_QUALITY

    def sent_bytes_per_step(self, worker_count: int, parameter_count: int, dtype: str) -> BytesPerStep:  # noqa: ARG002 - nothing is sent
        return BytesPerStep(workers=(0,))

    def predict_step_time(self, cost_model: CostModel) -> StepTimePrediction:
        return StepTimePrediction(compute_s=cost_model.compute_times.mean_slowest_s(), exchange_s=0.0, formula="t_c")

    def create_worker_algorithm(self, worker_context: WorkerContext) -> "SingleWorkerAlgorithm":
        return SingleWorkerAlgorithm(worker_context)


class SingleWorkerAlgorithm(WorkerAlgorithm):
    """Worker algorithm that updates the parameters with the worker's own gradient."""

    def initial_state(self, params: Vector) -> WorkerState:
        return self.context.updater.init_state(params)

    async def exchange_and_update(
        self,
        step: int,  # noqa: ARG002 - every step is the same
        params: Vector,
        gradient: Gradient,
        worker_state: WorkerState,
        step_timer: StepTimer,
    ) -> StepResult:
        with step_timer.measure_phase("update"):
            updater, samples_before = self.context.updater, gradient.samples_before
            return StepResult(*updater.update_params(params, gradient.mean, worker_state, samples_before))
