"""Runtime of the coordinator, which executes the actions of the state machine.

The runtime also evaluates the model and writes the log of the run.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil

import numpy as np

from services.coordinator.machine import (
    AnnounceRunStopAction,
    EndSwitchWaitAction,
    EvaluateParametersAction,
    FinishRunAction,
    LogTrainLossAction,
    ReplyToEvaluationPointAction,
    RequestStrategySwitchAction,
    RunAction,
    RunStateMachine,
    StartTrainingAction,
)
from services.coordinator.step_events import StepEventStarts
from services.coordinator.switch_machine import AnnounceDecisionAction, LogRuleDecisionAction, StartSwitchAction
from services.learning.datasets import TrainTestData
from services.learning.evaluation import evaluate_model
from services.plan import TrainingPlan
from services.runtime.clock import Clock
from services.runtime.control import (
    EvaluationPointReport,
    FinalNodeReport,
    ReportStage,
    StopOrSwitchDecision,
    StrategySwitchDecision,
    SwitchStageReport,
)
from services.runtime.run_log import RunLog
from services.schema.arrays import HostArray
from services.strategies.switching.rules import LossEvaluation, SwitchRuleDecision


@dataclass
class CoordinatorRuntime:
    """Coordinator of one training run.

    Nodes call its public methods, each of which returns the coordinator's reply.
    """

    plan: TrainingPlan
    machine: RunStateMachine
    data: TrainTestData
    clock: Clock
    log: RunLog
    run_finished: asyncio.Event = field(default_factory=asyncio.Event)
    _run_started: asyncio.Event = field(default_factory=asyncio.Event)
    _run_start_s: float = 0.0
    _run_stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _point_replies: dict[tuple[str, int], asyncio.Future[StopOrSwitchDecision]] = field(default_factory=dict)
    # Set when a strategy switch starts, and when nodes need not wait for one because none will come.
    _strategy_switch_call: asyncio.Event = field(default_factory=asyncio.Event)
    _is_switch_wait_cancelled: bool = False
    _switch_decisions: dict[ReportStage, asyncio.Future[StrategySwitchDecision]] = field(default_factory=dict)
    _strategy_switch_start_s: float = 0.0
    _is_switching_strategy: bool = False
    _strategy_switch_timeout: asyncio.Task[None] | None = None
    _final_messages: dict[str, FinalNodeReport] = field(default_factory=dict)
    _last_evaluated: EvaluationPointReport | None = None  # report with the parameters that were evaluated last
    _has_reached_target: bool = False
    _open_interval: int | None = None  # number of the training interval whose start is logged and whose stop is not

    async def join(self, node_name: str, plan_sha256: str) -> float:
        """Register a ready node, and return the start time of the run in virtual seconds.

        The call waits until the run starts.
        """
        actions = self.machine.handle_join(node_name, plan_sha256)
        self.log.log_event("membership", {"node": node_name, "event": "joined"})
        await self._run_machine_actions(actions)
        await self._run_started.wait()
        return self._run_start_s

    @cached_property
    def step_events(self) -> StepEventStarts:
        """Start times of the link events that wait for a training step."""
        return StepEventStarts(self.plan.events, self.clock, self.log)

    async def open_start_gate(self) -> None:
        """Record that the network is set up.

        Training may start as soon as all nodes have joined.
        """
        await self._run_machine_actions(self.machine.handle_start_gate_open())

    async def report_evaluation_point(self, point_report: EvaluationPointReport) -> StopOrSwitchDecision:
        """Record a worker's report at an evaluation point.

        Return whether the worker continues, stops or switches its strategy.
        """
        reply = self._point_reply_future(point_report.node_name, point_report.number)
        await self._run_machine_actions(self.machine.handle_evaluation_point(point_report))
        return await reply

    async def await_strategy_switch_start(self) -> bool:
        """Wait until a strategy switch starts, and return whether one has started.

        Return false if the run ends without a switch.
        """
        await self._strategy_switch_call.wait()
        return not self._is_switch_wait_cancelled

    async def report_strategy_switch(self, node_report: SwitchStageReport) -> StrategySwitchDecision:
        """Record a node's state in a strategy switch.

        Return the decision once all nodes have reported theirs.
        """
        decision = self._get_decision_future(node_report.stage)
        await self._run_machine_actions(self.machine.handle_strategy_switch_report(node_report))
        return await asyncio.shield(decision)

    async def await_run_stop(self) -> str:
        """Wait until the training run stops, and return the reason for the stop."""
        await self._run_stopped.wait()
        return self.machine.stop_reason

    async def leave(self, node_name: str, final_report: FinalNodeReport) -> None:
        """Record that a node leaves the run after its work, and keep its final state."""
        self._final_messages[node_name] = final_report
        self.log.log_event("membership", {"node": node_name, "event": "left"})
        await self._run_machine_actions(self.machine.handle_leave(node_name))

    def _get_decision_future(self, report_stage: ReportStage) -> asyncio.Future[StrategySwitchDecision]:
        return self._switch_decisions.setdefault(report_stage, asyncio.get_running_loop().create_future())

    def _point_reply_future(self, node_name: str, evaluation_number: int) -> asyncio.Future[StopOrSwitchDecision]:
        """Return the future of the reply to a worker's report at an evaluation point.

        A repeated report gets the same future.
        """
        return self._point_replies.setdefault(
            (node_name, evaluation_number), asyncio.get_running_loop().create_future()
        )

    async def _run_machine_actions(self, run_actions: list[RunAction]) -> None:
        for action in run_actions:
            match action:
                case StartTrainingAction():
                    self._start_run()
                case EvaluateParametersAction(report):
                    await self._evaluate_parameters(report)
                case LogTrainLossAction(report, mean_loss):
                    self._log_train_loss(report, mean_loss)
                case FinishRunAction():
                    await self._finish_run()
                case _:
                    self._run_action_without_waiting(action)

    def _run_action_without_waiting(self, action: RunAction) -> None:
        """Execute an action of the coordinator's state machine that needs no waiting."""
        match action:
            case ReplyToEvaluationPointAction(node_name, evaluation_number, stop_reason):
                self._send_point_reply(node_name, evaluation_number, StopOrSwitchDecision(stop_reason))
            case RequestStrategySwitchAction(node_name, evaluation_number):
                self._send_point_reply(node_name, evaluation_number, StopOrSwitchDecision(must_switch_strategy=True))
            case AnnounceRunStopAction():
                self._run_stopped.set()
            case LogRuleDecisionAction(point, decision):
                self._log_switch_rule_decision(point, decision)
            case StartSwitchAction():
                self._start_strategy_switch()
            case AnnounceDecisionAction():
                self._announce_decision(action)
            case EndSwitchWaitAction():
                self._is_switch_wait_cancelled = True
                self._strategy_switch_call.set()

    def _start_run(self) -> None:
        self.log.log_end("init_stop")
        self._run_start_s = self.clock.now()
        self.log.log_start("run_start")
        self._log_mlperf_interval_start(1, 0)
        self._run_started.set()

    async def _evaluate_parameters(self, point_report: EvaluationPointReport) -> None:
        """Evaluate the model parameters in a worker's report.

        The metrics are passed to the state machine of the run.
        """
        self._last_evaluated = point_report
        self._log_mlperf_interval_stop(point_report.samples)
        params = np.frombuffer(point_report.parameters, self.plan.dtype)
        epoch_number = ceil(point_report.steps / self.plan.steps_per_epoch)
        eval_metrics = await self._measure_quality(params, epoch_number, point_report.samples, point_report.steps)
        actions = self.machine.handle_evaluation(point_report, eval_metrics)
        if not self.machine.stop_reason and point_report.number < self.machine.evaluation_points:
            self._log_mlperf_interval_start(point_report.steps // self.plan.steps_per_epoch + 1, point_report.samples)
        await self._run_machine_actions(actions)

    def _log_mlperf_interval_start(self, first_epoch: int, samples_trained: int) -> None:
        """Log the start of the training before the next evaluation: an epoch, or a block of samples."""
        self._open_interval = first_epoch
        name, epoch_key = self._mlperf_interval_names
        self.log.log_start(f"{name}_start", **{epoch_key: first_epoch, "samples_count": samples_trained})

    def _log_mlperf_interval_stop(self, samples_trained: int) -> None:
        """Log the end of the current epoch or block, unless it has been logged already.

        In asynchronous training the evaluation worker may train longer than planned. This is not logged.
        """
        if self._open_interval is not None:
            name, epoch_key = self._mlperf_interval_names
            self.log.log_end(f"{name}_stop", **{epoch_key: self._open_interval, "samples_count": samples_trained})
        self._open_interval = None

    @property
    def _mlperf_interval_names(self) -> tuple[str, str]:
        """Name of the training between two evaluations in the log, and the name of its first epoch.

        MLPerf logs `epoch_start` where evaluations follow epochs, and `block_start` where they follow samples.
        """
        is_once_per_epoch = self.plan.evaluation_schedule.is_once_per_epoch
        return ("epoch", "epoch_num") if is_once_per_epoch else ("block", "first_epoch_num")

    async def _measure_quality(
        self, params: HostArray, epoch: int, samples_trained: int, step: int
    ) -> dict[str, float]:
        """Evaluate model parameters on the evaluation set.

        Log the quality metrics and return them by name.
        """
        labels = {"epoch_num": epoch, "samples_count": samples_trained}
        self.log.log_start("eval_start", **labels)
        eval_metrics = await self.clock.run_compute_function(lambda: evaluate_model(self.plan.model, self.data, params))
        metric = self.plan.target.metric if self.plan.target else next(iter(eval_metrics))
        self.log.log_event("eval_accuracy", eval_metrics[metric], **labels, metric=metric)
        self.log.log_event("eval_metrics", eval_metrics, **labels, step=step)
        self.log.log_end("eval_stop", **labels)
        self._has_reached_target |= self.plan.target is not None and self.plan.target.is_reached(eval_metrics)
        return eval_metrics

    def _log_train_loss(self, report: EvaluationPointReport, loss: float) -> None:
        epoch = self.plan.evaluation_schedule.epoch_of_evaluation(report.number)
        self.log.log_event("train_loss", loss, epoch_num=epoch, samples_count=report.samples, step=report.steps)

    def _send_point_reply(self, node_name: str, evaluation_number: int, decision: StopOrSwitchDecision) -> None:
        reply = self._point_reply_future(node_name, evaluation_number)
        if not reply.done():
            reply.set_result(decision)

    def _log_switch_rule_decision(self, eval_point: LossEvaluation, decision: SwitchRuleDecision) -> None:
        """Log every decision of the rule for a strategy switch.

        So the log shows why no switch began.
        """
        epoch = self.plan.evaluation_schedule.epoch_of_evaluation(eval_point.number)
        self.log.log_event("switch_rule", decision._asdict(), epoch_num=epoch, step=eval_point.step)

    def _start_strategy_switch(self) -> None:
        self._strategy_switch_start_s, self._is_switching_strategy = self.clock.now(), True
        self._strategy_switch_call.set()
        self._strategy_switch_timeout = asyncio.get_running_loop().create_task(self._abort_switch_on_timeout())

    async def _abort_switch_on_timeout(self) -> None:
        """Abort the strategy switch after a time limit.

        A node that never reports must not block the other nodes.
        """
        await self.clock.sleep_until(self._strategy_switch_start_s + self.plan.timeouts.step)
        await self._run_machine_actions(
            self.machine.abort_strategy_switch(f"a node did not report its state within {self.plan.timeouts.step:g} s")
        )

    def _announce_decision(self, switch_announcement: AnnounceDecisionAction) -> None:
        decision = self._get_decision_future(switch_announcement.stage)
        if decision.done():
            return
        if switch_announcement.stage == "stopped" and switch_announcement.decision.action != "abort":
            self._log_switch_decision("switch_prepared", switch_announcement)
        decision.set_result(switch_announcement.decision)
        if switch_announcement.decision.action != "load":
            self._finish_strategy_switch(switch_announcement)

    def _finish_strategy_switch(self, switch_announcement: AnnounceDecisionAction) -> None:
        if not self._is_switching_strategy:
            return  # an abort decides both report stages, but ends the switch once
        self._is_switching_strategy = False
        if self._strategy_switch_timeout and self._strategy_switch_timeout is not asyncio.current_task():
            self._strategy_switch_timeout.cancel()
        if not self._is_switch_wait_cancelled:
            self._strategy_switch_call.clear()
        stage = "switch_committed" if switch_announcement.decision.action == "commit" else "switch_aborted"
        self._log_switch_decision(stage, switch_announcement)

    def _log_switch_decision(self, log_event_key: str, switch_announcement: AnnounceDecisionAction) -> None:
        """Log a stage of the strategy switch.

        The log entry contains the model's digests and the seconds since the first node stopped.
        """
        decision, seconds = switch_announcement.decision, round(self.clock.now() - self._strategy_switch_start_s, 6)
        if decision.action == "abort":
            self.log.log_event(log_event_key, {"reason": decision.abort_reason, "seconds": seconds})
            return
        value = {
            "step": decision.first_step,
            "version": decision.version,
            "samples": decision.samples,
            "params_sha256": switch_announcement.param_digests,
            "state_sha256": switch_announcement.state_digests,
            "loaded": switch_announcement.stage == "loaded" or decision.action == "load",
            "seconds": seconds,
        }
        self.log.log_event(log_event_key, value, samples_count=decision.samples, step=decision.first_step)

    async def _finish_run(self) -> None:
        """Log the digest of the final parameters, and the end of the run."""
        steps, samples = (self._last_evaluated.steps, self._last_evaluated.samples) if self._last_evaluated else (0, 0)
        digest = self._last_evaluated.parameters_sha256 if self._last_evaluated else ""
        parameters = self._last_evaluated.parameters if self._last_evaluated else b""
        result = self._asynchronous_result()
        if result is not None:
            steps, samples = result.version, result.samples
        # Asynchronous workers may use up the budget before the evaluation worker has reached its next evaluation.
        self._log_mlperf_interval_stop(samples)
        if result is not None:
            parameters = result.parameters
            digest = hashlib.sha256(parameters).hexdigest()
            params, schedule = np.frombuffer(parameters, self.plan.dtype), self.plan.evaluation_schedule
            evaluation_number = max(1, round(samples / schedule.samples_between))
            passed_steps = round(samples * self.plan.steps_per_epoch / self.plan.train_samples)
            epoch_number = schedule.epoch_of_evaluation(evaluation_number)
            eval_metrics = await self._measure_quality(params, epoch_number, samples, passed_steps)
            await self._run_machine_actions(
                self.machine.handle_final_evaluation(evaluation_number, passed_steps, eval_metrics)
            )
        self.log.log_event("params_sha256", digest, samples_count=samples, step=steps)
        is_target_missed = self.plan.target is not None and not self._has_reached_target
        self.log.log_end(
            "run_stop",
            status="aborted" if is_target_missed or self.machine.has_diverged else "success",
            target_reached=self._has_reached_target,
            diverged=self.machine.has_diverged,
            reason=self.machine.divergence_reason
            or self.machine.stop_reason
            or ("target missed" if is_target_missed else "budget used"),
            samples_count=samples,
            step=steps,
        )
        self._run_stopped.set()
        await self._log_sample_pictures(np.frombuffer(parameters, self.plan.dtype))
        self.run_finished.set()

    def _asynchronous_result(self) -> FinalNodeReport | None:
        """Return the final parameters after asynchronous training: those of the servers, or the mean over workers.

        None after synchronous training, whose result has been evaluated already.
        """
        if self.machine.is_synchronous:
            return None
        if self.plan.shard_owners:
            of_servers = [self._final_messages[name] for name in self.plan.shard_owners]
            return replace(of_servers[0], parameters=b"".join(message.parameters for message in of_servers))
        of_workers = [self._final_messages[name] for name in self.machine.worker_names]
        mean = _mean_vector([np.frombuffer(message.parameters, self.plan.dtype) for message in of_workers])
        return FinalNodeReport(mean.tobytes(), of_workers[0].version, max(message.samples for message in of_workers))

    async def _log_sample_pictures(self, params: HostArray) -> None:
        """Log pictures that show what the trained model does, if the model has any and has not diverged.

        The run is over, so the pictures take no training time.
        """
        if params.size and np.isfinite(params).all():
            model, data = self.plan.model, self.data
            pictures = await self.clock.run_compute_function(lambda: model.create_sample_pictures(data, params))
            if pictures:
                self.log.log_event("sample_pictures", pictures.to_log_value())


def _mean_vector(vectors: Sequence[HostArray]) -> HostArray:
    """Return the mean of vectors of shape (n,), summed in fp64 in their order."""
    total = np.zeros(vectors[0].shape)
    for vector in vectors:
        total += vector
    return (total / len(vectors)).astype(vectors[0].dtype)
