"""Evaluation points of a worker: the mean of all workers' parameters, and the report to the coordinator."""

from dataclasses import dataclass, replace

from services.plan import NodePlan, TrainingPlan
from services.runtime.clock import Clock
from services.runtime.control import CoordinatorClient, EvaluationPointReport, StopOrSwitchDecision
from services.runtime.run_log import RunLog
from services.schema.arrays import euclidean_norm, without_divergence_warnings
from services.strategies import StepResult
from services.worker.counters import LossAndStepCounters
from services.worker.replica_hash import vector_sha256
from services.worker.training_phase import WorkerTrainingPhase


@dataclass(frozen=True)
class EvaluationPoints:
    """Evaluation points of one worker, after some of its steps."""

    plan: TrainingPlan
    node: NodePlan
    control: CoordinatorClient
    clock: Clock
    log: RunLog
    reports_params: bool  # whether this worker is the evaluation worker

    async def average_params(
        self, phase: WorkerTrainingPhase, finished_step_count: int, step_result: StepResult
    ) -> StepResult:
        """Return the result of a step with the mean of the parameters of all workers as the parameters to evaluate.

        The result is unchanged if the strategy needs no exchange before an evaluation. Otherwise log how far the
        parameters of this worker are from the mean, and what the exchange has cost.
        """
        if step_result.average_params is None:
            return step_result
        traffic, started_s = phase.context.transport.traffic, self.clock.now()
        bytes_before = traffic.payload_bytes
        own = step_result.params if step_result.eval_params is None else step_result.eval_params
        with without_divergence_warnings():
            mean = await step_result.average_params(phase.context)
            value = {
                "distance": float(euclidean_norm(own - mean)),
                "mean_norm": float(euclidean_norm(mean)),
                "seconds": round(self.clock.now() - started_s, 6),
                "bytes_sent": traffic.payload_bytes - bytes_before,
            }
        self.log.log_event("consensus", value, step=finished_step_count)
        return replace(step_result, eval_params=mean)

    async def report_params(
        self,
        phase: WorkerTrainingPhase,
        finished_step_count: int,
        last_step_result: StepResult,
        counters: LossAndStepCounters,
    ) -> StopOrSwitchDecision:
        """Report the parameters and losses at an evaluation point to the coordinator.

        The coordinator's reply is to continue, stop or switch the strategy.
        """
        params = phase.context.device.to_host(
            last_step_result.params if last_step_result.eval_params is None else last_step_result.eval_params
        )
        digest = vector_sha256(params)
        if phase.is_synchronous:
            self.log.log_event("node_hash", digest, step=finished_step_count)
        return await self.control.report_evaluation_point(
            EvaluationPointReport(
                node_name=self.node.name,
                number=self.plan.evaluation_schedule.evaluation_number(finished_step_count),
                steps=finished_step_count,
                samples=last_step_result.samples
                or phase.count_samples_before(finished_step_count, self.plan.data_order),
                loss_sum=counters.loss_sum,
                loss_samples=counters.loss_samples,
                parameters=params.tobytes() if self.reports_params else b"",
                parameters_sha256=digest,
            )
        )
