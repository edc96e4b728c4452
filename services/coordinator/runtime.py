"""Runtime of the coordinator, which executes the actions of the state machine.

The runtime also writes the log of the run.
"""

import asyncio
import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from pathlib import Path

import numpy as np

from services.checkpoints.folder import CheckpointFolder
from services.checkpoints.node_checkpoints import require_checkpoint_folder
from services.cluster.events import PlannedEvent
from services.coordinator.checkpoint_announcements import CheckpointAnnouncements
from services.coordinator.checkpoints import CheckpointCompletion
from services.coordinator.final_parameters import average_worker_reports, join_server_reports
from services.coordinator.machine import RunStateMachine
from services.coordinator.membership import MembershipCalls
from services.coordinator.membership_machine import MembershipStateMachine
from services.coordinator.model_evaluation import ModelEvaluator
from services.coordinator.run_actions import (
    AnnounceRunStopAction,
    EndSwitchWaitAction,
    EvaluateParametersAction,
    FinishRunAction,
    LogTrainLossAction,
    ReplyToEvaluationPointAction,
    RequestStrategySwitchAction,
    RunAction,
    StartTrainingAction,
)
from services.coordinator.step_events import StepEventStarts
from services.coordinator.strategy_switch import StrategySwitchCalls
from services.coordinator.switch_machine import AnnounceDecisionAction, LogRuleDecisionAction, StartSwitchAction
from services.coordinator.training_intervals import TrainingIntervalLog
from services.learning.datasets import TrainTestData
from services.plan import TrainingPlan
from services.runtime.clock import Clock
from services.runtime.control import (
    EvaluationPointReport,
    FinalNodeReport,
    StopOrSwitchDecision,
    StrategySwitchDecision,
    SwitchStageReport,
)
from services.runtime.membership import Membership
from services.runtime.run_log import RunLog
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
    trial_folder: Path | None = None  # that has the checkpoints; None if none are written
    run_finished: asyncio.Event = field(default_factory=asyncio.Event)
    _run_started: asyncio.Event = field(default_factory=asyncio.Event)
    _run_start_s: float = 0.0
    _run_stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _point_replies: dict[tuple[str, int], asyncio.Future[StopOrSwitchDecision]] = field(default_factory=dict)
    _final_messages: dict[str, FinalNodeReport] = field(default_factory=dict)
    _finishing: "asyncio.Task[None] | None" = None  # what follows after the last node has left
    _error: BaseException | None = None
    _last_evaluated: EvaluationPointReport | None = None  # report with the parameters that were evaluated last

    async def join(self, node_name: str, plan_sha256: str) -> float:
        """Register a ready node, and return the start time of the run in virtual seconds.

        The call waits until the run starts.
        """
        actions = self.machine.handle_join(node_name, plan_sha256)
        if self._run_started.is_set() and self.plan.recovery.is_active:
            await self.membership.rejoin(node_name)
            self.log.log_event("membership", {"node": node_name, "event": "joined again"})
            return self._run_start_s
        self.log.log_event("membership", {"node": node_name, "event": "joined"})
        await self._run_machine_actions(actions)
        return await self.await_run_start()

    async def await_run_start(self) -> float:
        """Wait until the run starts, and return its start time in virtual seconds."""
        await self._run_started.wait()
        return self._run_start_s

    def find_event_start_s(self, event: PlannedEvent) -> float | None:
        """Return when an event began, or begins if its time is known, in virtual seconds; None if it is not known."""
        if event.time_s is None:
            return self.step_events.started_at(event.number)
        return self._run_start_s + event.time_s if self._run_started.is_set() else None

    @cached_property
    def step_events(self) -> StepEventStarts:
        """Start times of link events and faults of nodes that wait for a training step."""
        return StepEventStarts(self.plan.events, self.clock, self.log)

    @cached_property
    def strategy_switch(self) -> StrategySwitchCalls:
        """Calls of the nodes in a strategy switch."""
        return StrategySwitchCalls(self.clock, self.log, self.plan.timeouts.step)

    @cached_property
    def membership(self) -> MembershipCalls:
        """Calls by which nodes take part in changes of the membership."""
        servers = tuple(server.name for server in self.plan.node_plans_of_role("ps_shard"))
        machine = MembershipStateMachine(
            self.plan.recovery,
            self.machine.worker_names,
            servers,
            needs_common_step=self.plan.is_synchronous,
            is_gossip=self.plan.is_gossip,
            are_servers_idle=self.plan.strategy.training_phases().first.server_algorithm() is None,
        )
        return MembershipCalls(machine, self.clock, self.log, self._remove_lost_node, self._change_workers)

    @cached_property
    def checkpoints(self) -> CheckpointCompletion:
        """Completion of the checkpoints that nodes write.

        Raises:
            HostError: the engine has given no folder for checkpoints.
        """
        machine = self.membership.machine
        return CheckpointCompletion(
            CheckpointFolder(require_checkpoint_folder(self.trial_folder)),
            self.plan.sha256,
            self.plan.trial,
            machine.server_names,
            lambda: machine.membership,
            self.log,
        )

    @cached_property
    def checkpoint_announcements(self) -> CheckpointAnnouncements:
        """Announcements of checkpoints whose interval is a time."""
        return CheckpointAnnouncements(self.membership.machine, self.clock, self.log)

    @cached_property
    def _evaluator(self) -> ModelEvaluator:
        is_reached = self.plan.continued is not None and self.plan.continued.is_target_reached
        return ModelEvaluator(self.plan, self.data, self.clock, self.log, has_reached_target=is_reached)

    @cached_property
    def _training_intervals(self) -> TrainingIntervalLog:
        return TrainingIntervalLog(self.log, self.plan.evaluation_schedule)

    async def open_start_gate(self) -> None:
        """Record that the network is set up.

        Training may start as soon as all nodes have joined.
        """
        await self._run_machine_actions(self.machine.handle_start_gate_open())

    async def report_evaluation_point(self, point_report: EvaluationPointReport) -> StopOrSwitchDecision:
        """Record a worker's report at an evaluation point.

        Return whether the worker continues, stops or switches its strategy.

        Raises:
            EvictedError: the coordinator considers the worker lost, and training goes on without it.
            ProtocolError: the worker or the evaluation point does not exist.
        """
        self.membership.machine.check_not_evicted(point_report.node_name)
        reply = self._point_reply_future(point_report.node_name, point_report.number)
        await self._run_machine_actions(self.machine.handle_evaluation_point(point_report))
        return await asyncio.shield(reply)  # a node that is lost meanwhile may report the same point again

    async def await_strategy_switch_start(self) -> bool:
        """Wait until a strategy switch starts, and return whether one has started.

        Return false if the run ends without a switch.
        """
        return await self.strategy_switch.await_start()

    async def report_strategy_switch(self, node_report: SwitchStageReport) -> StrategySwitchDecision:
        """Record a node's state in a strategy switch.

        Return the decision once all nodes have reported theirs.
        """
        if node_report.epoch < self.strategy_switch.epoch:
            await asyncio.Event().wait()  # the node learns of the new membership, and cancels the call
        decision = self.strategy_switch.decision_future(node_report.stage)
        actions = self.machine.handle_strategy_switch_report(node_report)
        if self.machine.has_switched_strategy:
            self.membership.machine.handle_strategy_switch(needs_common_step=self.machine.is_synchronous)
        await self._run_machine_actions(actions)
        return await asyncio.shield(decision)

    async def await_run_stop(self) -> str:
        """Wait until the training run stops, and return the reason for the stop."""
        await self._run_stopped.wait()
        return self.machine.stop_reason

    async def leave(self, node_name: str, final_report: FinalNodeReport) -> None:
        """Record that a node leaves the run after its work, and keep its final state.

        During a recovery, the call does not return: all nodes wait for the report of this one. It learns of the new
        membership, cancels the call, and continues with them.
        """
        if self.membership.machine.is_recovering:
            await asyncio.Event().wait()
        self._final_messages[node_name] = final_report
        self.log.log_event("membership", {"node": node_name, "event": "left"})
        self.membership.machine.handle_leave(node_name)
        self._finishing = asyncio.create_task(self._handle_departure(self.machine.handle_leave(node_name)))
        self._finishing.add_done_callback(self._end_run_after_error)
        await asyncio.shield(self._finishing)  # the last node may be killed while its call evaluates the final model

    def _end_run_after_error(self, finishing: "asyncio.Task[None]") -> None:
        """End the run if its end has failed: the call that has begun it may be over."""
        if not finishing.cancelled() and finishing.exception() is not None:
            self._error = finishing.exception()
            self.run_finished.set()

    def raise_error(self) -> None:
        """Raise the error with which the run has ended; return if there is none."""
        if self._error is not None:
            raise self._error

    def _point_reply_future(self, node_name: str, evaluation_number: int) -> asyncio.Future[StopOrSwitchDecision]:
        """Return the future of the reply to a worker's report at an evaluation point.

        A repeated report gets the same future.
        """
        return self._point_replies.setdefault(
            (node_name, evaluation_number), asyncio.get_running_loop().create_future()
        )

    async def _remove_lost_node(self, node_name: str) -> None:
        await self._handle_departure(self.machine.handle_node_loss(node_name))

    async def _handle_departure(self, run_actions: list[RunAction]) -> None:
        """Go on without a node that has left or was lost."""
        await self.checkpoint_announcements.handle_departure()
        await self._run_machine_actions(run_actions)

    def _change_workers(self, membership: Membership) -> None:
        """Continue with the workers of a membership.

        Synchronous workers break off their steps, and report again where they have no reply yet: none waits for the
        reply to an earlier report. Asynchronous workers go on without a break, and still wait.
        """
        self.machine.change_workers(membership.workers, membership.joined)
        self.strategy_switch.begin_epoch(membership.epoch)
        if membership.needs_common_step:
            self._point_replies = {key: reply for key, reply in self._point_replies.items() if reply.done()}

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
                self.strategy_switch.start(self._abort_strategy_switch)
            case AnnounceDecisionAction():
                self.strategy_switch.announce(action)
            case EndSwitchWaitAction():
                self.strategy_switch.cancel_wait()

    def _start_run(self) -> None:
        self.log.log_end("init_stop")
        self._run_start_s = self.clock.now()
        self.log.log_start("run_start")
        self._log_first_training_interval()
        self.membership.start_watching()
        self._run_started.set()

    def _log_first_training_interval(self) -> None:
        """Log the start of the training, and the checkpoint with which it continues an earlier one."""
        step = self.plan.first_step
        samples = self.plan.data_order.count_samples_before(step)
        if self.plan.continued:
            value = self.plan.continued.model_dump(mode="json", exclude={"step"})
            self.log.log_event("training_continued", value, step=step, samples_count=samples)
        # An evaluation that is due at the step of the checkpoint comes after the checkpoint.
        epoch = max(0, step - 1) // self.plan.steps_per_epoch + 1
        self._training_intervals.log_start(epoch, samples)

    async def _evaluate_parameters(self, point_report: EvaluationPointReport) -> None:
        """Evaluate the model parameters in a worker's report.

        The metrics are passed to the state machine of the run.
        """
        self._last_evaluated = point_report
        self._training_intervals.log_stop(point_report.samples)
        params = np.frombuffer(point_report.parameters, self.plan.dtype)
        epoch_number = ceil(point_report.steps / self.plan.steps_per_epoch)
        eval_metrics = await self._evaluator.measure_quality(
            params, epoch_number, point_report.samples, point_report.steps
        )
        actions = self.machine.handle_evaluation(point_report, eval_metrics)
        if not self.machine.stop_reason and point_report.number < self.machine.evaluation_points:
            self._training_intervals.log_start(
                point_report.steps // self.plan.steps_per_epoch + 1, point_report.samples
            )
        await self._run_machine_actions(actions)

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

    async def _abort_strategy_switch(self, reason: str) -> None:
        await self._run_machine_actions(self.machine.abort_strategy_switch(reason))

    async def _finish_run(self) -> None:
        """Log the digest of the final parameters, and the end of the run."""
        steps, samples = (self._last_evaluated.steps, self._last_evaluated.samples) if self._last_evaluated else (0, 0)
        digest = self._last_evaluated.parameters_sha256 if self._last_evaluated else ""
        parameters = self._last_evaluated.parameters if self._last_evaluated else b""
        result = self._asynchronous_result()
        if result is not None:
            steps, samples = result.version, result.samples
        # Asynchronous workers may use up the budget before the evaluation worker has reached its next evaluation.
        self._training_intervals.log_stop(samples)
        if result is not None:
            parameters = result.parameters
            digest = hashlib.sha256(parameters).hexdigest()
            params, schedule = np.frombuffer(parameters, self.plan.dtype), self.plan.evaluation_schedule
            evaluation_number = max(1, round(samples / schedule.samples_between))
            passed_steps = round(samples * self.plan.steps_per_epoch / self.plan.train_samples)
            epoch_number = schedule.epoch_of_evaluation(evaluation_number)
            eval_metrics = await self._evaluator.measure_quality(params, epoch_number, samples, passed_steps)
            await self._run_machine_actions(
                self.machine.handle_final_evaluation(evaluation_number, passed_steps, eval_metrics)
            )
        self.log.log_event("params_sha256", digest, samples_count=samples, step=steps)
        is_target_missed = self.plan.target is not None and not self._evaluator.has_reached_target
        self.log.log_end(
            "run_stop",
            status="aborted" if is_target_missed or self.machine.has_diverged else "success",
            target_reached=self._evaluator.has_reached_target,
            diverged=self.machine.has_diverged,
            reason=self.machine.divergence_reason
            or self.machine.stop_reason
            or ("target missed" if is_target_missed else "budget used"),
            samples_count=samples,
            step=steps,
        )
        self._run_stopped.set()
        await self._evaluator.log_sample_pictures(np.frombuffer(parameters, self.plan.dtype))
        self.run_finished.set()

    def _asynchronous_result(self) -> FinalNodeReport | None:
        """Return the final parameters after asynchronous training: those of the servers, or the mean over workers.

        None after synchronous training, whose result has been evaluated already.
        """
        if self.machine.is_synchronous:
            return None
        if self.plan.shard_owners:
            return join_server_reports(self._final_messages, self.plan.shard_owners)
        return average_worker_reports(self._final_messages, self.machine.worker_names, self.plan.dtype)
