"""State machine by which the coordinator controls a training run.

The state machine keeps track of joined nodes, evaluation points, early stop and strategy switch. Each event of the run
is a method call that returns the actions to take. This module uses no clock, socket or model.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from math import inf, isfinite, nan

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
from services.coordinator.switch_machine import LogRuleDecisionAction, StartSwitchAction, StrategySwitchStateMachine
from services.runtime.control import EvaluationPointReport, SwitchStageReport
from services.scenario.target import QualityTarget
from services.schema.errors import AuthenticationError, ProtocolError
from services.strategies.switching.rules import LossEvaluation, LossSource

NO_STOP_REASON = ""  # training continues


@dataclass
class RunStateMachine:
    """State machine of one training run in the coordinator.

    It keeps track of joined nodes, evaluation points, early stop and strategy switch. At an evaluation point, which
    follows the same step of every worker, each worker reports its losses, and the parameters of the evaluation worker
    are evaluated. In synchronous training all workers wait for the evaluation, so that all stop after the same step. In
    asynchronous training only the evaluation worker waits for it. The other workers receive the request to stop as soon
    as the stop is decided.
    """

    node_names: frozenset[str]
    worker_names: tuple[str, ...]  # by rank; rank 0 is the evaluation worker
    evaluation_points: int  # of the whole budget
    is_synchronous: bool  # whether all workers do the same number of steps
    target: QualityTarget | None  # training stops when it is reached; None: at the end of the budget
    plan_sha256: str
    strategy_switch: StrategySwitchStateMachine | None = None  # None: the strategy has one training phase
    stop_reason: str = NO_STOP_REASON
    divergence_reason: str = ""  # names the first loss that was NaN or infinite; empty while all are finite
    point_name: str = "epoch"  # of an evaluation point with its number, in reasons: "epoch" or "evaluation"
    _joined_nodes: set[str] = field(default_factory=set)
    _left_nodes: set[str] = field(default_factory=set)
    _lost_nodes: set[str] = field(default_factory=set)
    _is_start_gate_open: bool = False
    _is_released: bool = False
    _point_reports: dict[int, dict[str, EvaluationPointReport]] = field(default_factory=dict)
    _last_evaluated_point: int = 0
    _validation_loss: float = nan  # at the last evaluated point
    _last_decided_point: int = 0  # last point after which continue or stop is decided; synchronous training only
    _strategy_switch_point: int = 0  # point after which workers switch to the second phase; 0: none
    # Reports whose losses are not logged yet, and the number of losses logged; asynchronous training only.
    _unlogged_reports: list[EvaluationPointReport] = field(default_factory=list)
    _logged_losses: int = 0

    def handle_join(self, node_name: str, plan_sha256: str) -> list[RunAction]:
        """Record that a node is ready to start training.

        A repeated call changes nothing.

        Raises:
            AuthenticationError: the node does not belong to this run, or was started with another plan.
        """
        if node_name not in self.node_names:
            raise AuthenticationError(f"{node_name} is not a node of this run")
        if plan_sha256 != self.plan_sha256:
            raise AuthenticationError(f"{node_name} was started with a plan that differs from the coordinator's")
        self._joined_nodes.add(node_name)
        return self._start_training_when_ready()

    def handle_start_gate_open(self) -> list[RunAction]:
        """Record the engine's signal that the network is set up, so that training may start."""
        self._is_start_gate_open = True
        return self._start_training_when_ready()

    def handle_evaluation_point(self, report: EvaluationPointReport) -> list[RunAction]:
        """Record a worker's report at an evaluation point.

        A repeated report changes nothing and gets no second reply. Neither does a report that a synchronous worker sent
        without parameters before it became the evaluation worker: the worker reports the point again.

        Raises:
            ProtocolError: the worker or the evaluation point does not exist.
        """
        # A fast asynchronous worker does more than its share of the budget. After a switch its numbers continue.
        last_number = self.evaluation_points if self.is_synchronous and not self.has_switched_strategy else inf
        if report.node_name not in self.worker_names:
            raise ProtocolError(
                f"{report.node_name} can't report an evaluation point; workers are {', '.join(self.worker_names)}"
            )
        if not 1 <= report.number <= last_number:
            raise ProtocolError(
                f"{report.node_name} can't report evaluation point {report.number}; points are 1 to {last_number}"
            )
        reports = self._point_reports.setdefault(report.number, {})
        is_evaluated = report.node_name == self.worker_names[0] and report.number > self._last_evaluated_point
        if report.node_name in reports or (is_evaluated and self.is_synchronous and not report.parameters):
            return []
        reports[report.node_name] = replace(report, parameters=b"")  # parameters of all points would fill the memory
        actions: list[RunAction] = []
        if is_evaluated and report.parameters:
            actions.append(EvaluateParametersAction(report))
        elif not self.is_synchronous or report.number <= self._last_decided_point:
            actions.append(self._make_reply(report.node_name, report.number))
        if self.is_synchronous and self._have_all_workers_reported(reports):
            actions.append(self._record_train_loss(reports[self.worker_names[0]], _mean_loss(reports.values())))
            actions.extend(self._continue_switch_or_stop(report.number))
        if not self.is_synchronous:
            actions.extend(self._count_async_worker_report(replace(report, parameters=b"")))
        return actions

    def _count_async_worker_report(self, point_report: EvaluationPointReport) -> list[RunAction]:
        """Count an asynchronous worker's report towards the next mean training loss.

        The mean is over as many reports as there are workers, which together cover the samples between two evaluations.
        Fast workers report more often than slow ones.
        """
        self._unlogged_reports.append(point_report)
        if len(self._unlogged_reports) < len(self._computing_worker_names):
            return []
        reports, self._unlogged_reports, self._logged_losses = self._unlogged_reports, [], self._logged_losses + 1
        action = self._record_train_loss(replace(point_report, number=self._logged_losses), _mean_loss(reports))
        if not self._does_switch_rule_use("train"):
            return [action]
        point = LossEvaluation(self._logged_losses, point_report.steps, train_loss_sums=_get_worker_loss_sums(reports))
        return [action, *self._apply_strategy_switch_rule(point)]

    def handle_evaluation(self, point_report: EvaluationPointReport, eval_metrics: dict[str, float]) -> list[RunAction]:
        """Record the quality metrics of the parameters at an evaluation point, and decide whether training stops."""
        self._last_evaluated_point = point_report.number
        self._validation_loss = eval_metrics.get("loss", nan)
        self._record_validation_loss(point_report.number, eval_metrics)
        is_target_reached = self.target is not None and self.target.is_reached(eval_metrics)
        actions: list[RunAction] = []
        if is_target_reached and not self.stop_reason:
            self.stop_reason = "target reached"
            actions.append(AnnounceRunStopAction(self.stop_reason))
        if self.is_synchronous:
            return [*actions, *self._continue_switch_or_stop(point_report.number)]
        if self._does_switch_rule_use("validation"):
            actions += self._apply_strategy_switch_rule(
                LossEvaluation(point_report.number, point_report.steps, self._validation_loss)
            )
        return [*actions, self._make_reply(point_report.node_name, point_report.number)]

    def handle_final_evaluation(
        self, evaluation_number: int, step: int, eval_metrics: dict[str, float]
    ) -> list[RunAction]:
        """Record the quality metrics of the servers' final parameters.

        Called after all nodes have left. This is the last evaluation point of the switch rule. It also covers the
        training losses that are not logged yet.
        """
        self._record_validation_loss(evaluation_number, eval_metrics)
        if self._does_switch_rule_use("validation"):
            return self._apply_strategy_switch_rule(
                LossEvaluation(evaluation_number, step, eval_metrics.get("loss", nan))
            )
        if self._does_switch_rule_use("train") and self._unlogged_reports:
            return self._apply_strategy_switch_rule(
                LossEvaluation(
                    self._logged_losses + 1, step, train_loss_sums=_get_worker_loss_sums(self._unlogged_reports)
                )
            )
        return []

    @property
    def has_diverged(self) -> bool:
        """Whether a training loss or a validation loss was NaN or infinite."""
        return bool(self.divergence_reason)

    def _record_train_loss(self, point_report: EvaluationPointReport, mean_loss: float) -> LogTrainLossAction:
        """Record the mean training loss of all workers at an evaluation point, and return the action that logs it."""
        self._record_divergence(f"training loss of {self.point_name} {point_report.number}", mean_loss)
        return LogTrainLossAction(point_report, mean_loss)

    def _record_validation_loss(self, evaluation_number: int, eval_metrics: dict[str, float]) -> None:
        if "loss" in eval_metrics:
            self._record_divergence(f"validation loss of {self.point_name} {evaluation_number}", eval_metrics["loss"])

    def _record_divergence(self, loss_name: str, loss: float) -> None:
        """Record that training has diverged if a loss is not finite.

        The log names the first such loss as the reason. Training continues to the end of its budget.
        """
        if not isfinite(loss) and not self.divergence_reason:
            self.divergence_reason = f"training diverged: the {loss_name} is {loss}"

    @property
    def _computing_worker_names(self) -> tuple[str, ...]:
        """Names of the workers that compute gradients.

        Workers that a strategy switch turned into servers are left out.
        """
        if self.strategy_switch is None or not self.strategy_switch.is_committed:
            return self.worker_names
        weights = self.strategy_switch.switch.batch_shares_after_switch(len(self.worker_names))
        return tuple(worker for worker, weight in zip(self.worker_names, weights, strict=True) if weight)

    def _have_all_workers_reported(self, reporting_workers: Collection[str]) -> bool:
        """Return whether every worker that computes gradients has reported.

        `reporting_workers` contains the names of the workers that have reported.
        """
        return set(self._computing_worker_names) <= set(reporting_workers)

    def _does_switch_rule_use(self, loss_source: LossSource) -> bool:
        """Return whether the rule for a strategy switch uses the given kind of loss.

        `loss_source` is `validation` or `train`.
        """
        return self.strategy_switch is not None and self.strategy_switch.switch.rule.watched_loss_source == loss_source

    def _make_reply(
        self, node_name: str, evaluation_number: int
    ) -> ReplyToEvaluationPointAction | RequestStrategySwitchAction:
        if evaluation_number == self._strategy_switch_point:
            return RequestStrategySwitchAction(node_name, evaluation_number)
        return ReplyToEvaluationPointAction(node_name, evaluation_number, self.stop_reason)

    def _continue_switch_or_stop(self, number: int) -> list[RunAction]:
        """Decide whether synchronous training stops, switches its strategy or continues after an evaluation point."""
        reports = self._point_reports[number]
        awaits_losses = self._does_switch_rule_use("train") and not self._have_all_workers_reported(reports)
        if self._last_evaluated_point < number or self._last_decided_point >= number or awaits_losses:
            return []
        self._last_decided_point = number
        steps = reports[self.worker_names[0]].steps
        point = LossEvaluation(number, steps, self._validation_loss, _get_worker_loss_sums(reports.values()))
        actions = self._apply_strategy_switch_rule(point)
        self._strategy_switch_point = number if StartSwitchAction() in actions else 0
        return [*actions, *(self._make_reply(worker, number) for worker in self.worker_names if worker in reports)]

    def _apply_strategy_switch_rule(self, eval_point: LossEvaluation) -> list[RunAction]:
        """Evaluate the rule that decides about a strategy switch.

        At the end of training no switch starts.
        """
        if self.strategy_switch is None:
            return []
        is_last = self.is_synchronous and eval_point.number >= self.evaluation_points
        is_over = self.stop_reason or self._left_nodes or is_last
        actions: list[RunAction] = [*self.strategy_switch.handle_loss_evaluation(eval_point, may_switch=not is_over)]
        decisions = [action.decision for action in actions if isinstance(action, LogRuleDecisionAction)]
        if any(decision.gives_up for decision in decisions) and not self.stop_reason:
            self.stop_reason = f"training diverged: {decisions[0].skipped} losses were not finite"
            self.divergence_reason = self.stop_reason
            actions.append(AnnounceRunStopAction(self.stop_reason))
        return actions

    def handle_strategy_switch_report(self, node_report: SwitchStageReport) -> list[RunAction]:
        """Record a node's progress in a strategy switch.

        The node has stopped for the switch, or has loaded the model that was sent to it.

        Raises:
            ProtocolError: the run has no switch, or the node is ahead of other nodes.
        """
        if self.strategy_switch is None:
            raise ProtocolError(f"{node_report.node_name} can't switch its strategy: this run has only one strategy")
        actions = self.strategy_switch.handle_node_report(node_report)
        if self.strategy_switch.is_committed:
            self.is_synchronous = self.strategy_switch.switch.second.describe_worker_exchange().is_synchronous
            # Logged losses and evaluations are counted separately; the numbers of both continue from the larger one.
            self._logged_losses = max(self._logged_losses, self._last_evaluated_point)
        return [*actions]

    @property
    def has_switched_strategy(self) -> bool:
        """Whether the second training phase has begun."""
        return self.strategy_switch is not None and self.strategy_switch.is_committed

    def abort_strategy_switch(self, abort_reason: str) -> list[RunAction]:
        """Abort the strategy switch unless it is already committed or aborted."""
        return [*self.strategy_switch.abort(abort_reason)] if self.strategy_switch else []

    def handle_node_loss(self, node_name: str) -> list[RunAction]:
        """Remove a lost node from the run, whose end no longer waits for it."""
        self._lost_nodes.add(node_name)
        if not self._left_nodes:
            return []
        return [*self._end_switch_wait(), *([FinishRunAction()] if self._have_all_nodes_left else [])]

    def change_workers(self, worker_names: tuple[str, ...], returned_nodes: tuple[str, ...] = ()) -> None:
        """Continue with other workers, by rank, from a step that all of them have in common.

        They report again at evaluation points that are not decided yet. The run no longer ends without nodes that have
        returned: workers and servers that were lost and have been started again.
        """
        self.worker_names = worker_names
        if self.strategy_switch:
            self.strategy_switch.change_workers(worker_names)
        self._lost_nodes.difference_update(worker_names, returned_nodes)
        for number in [number for number in self._point_reports if number > self._last_decided_point]:
            del self._point_reports[number]

    def handle_leave(self, node_name: str) -> list[RunAction]:
        """Record that a node has left the run after its work.

        A repeated call changes nothing.

        Raises:
            ProtocolError: the node does not belong to this run.
        """
        if node_name not in self.node_names:
            raise ProtocolError(f"{node_name} can't leave: it is not a node of this run")
        if node_name in self._left_nodes:
            return []
        self._left_nodes.add(node_name)
        actions = self.abort_strategy_switch(f"{node_name} has left") if node_name in self.worker_names else []
        if node_name in self.worker_names:
            actions += self._end_switch_wait()
        return [*actions, FinishRunAction()] if self._have_all_nodes_left else actions

    def _end_switch_wait(self) -> list[RunAction]:
        """Return the action that ends the servers' wait for a strategy switch, if no worker can start one."""
        have_workers_left = self._left_nodes >= set(self.worker_names) - self._lost_nodes
        return [EndSwitchWaitAction()] if self.strategy_switch and have_workers_left else []

    @property
    def _have_all_nodes_left(self) -> bool:
        """Whether all nodes that are not lost have left the run after their work."""
        return self._left_nodes >= self.node_names - self._lost_nodes

    def _start_training_when_ready(self) -> list[RunAction]:
        if self._is_released or not self._is_start_gate_open or self._joined_nodes != self.node_names:
            return []
        self._is_released = True
        return [StartTrainingAction()]


def _get_worker_loss_sums(point_reports: Collection[EvaluationPointReport]) -> tuple[tuple[float, int], ...]:
    """Return the sum of losses and the number of samples in each worker's report."""
    return tuple((report.loss_sum, report.loss_samples) for report in point_reports)


def _mean_loss(point_reports: Collection[EvaluationPointReport]) -> float:
    """Return the mean loss over all samples in the reports of several workers."""
    return sum(report.loss_sum for report in point_reports) / sum(report.loss_samples for report in point_reports)
