"""State machine of a strategy switch during training.

It decides when the switch starts, and whether all nodes have the same model.

Stages:

- `waiting`: the switch rule has not fired, and no node has reached a planned switch.
- `stopping`: at least one node has stopped for the switch; the others get the request to stop.
- `loading`: all nodes have stopped and agree on the model; the nodes that lack parts of it receive them.
- `over`: committed if all nodes have the same model, aborted if anything differs or fails.

Nothing changes before the commit: after an abort all nodes continue with the first phase. If the workers change before
the commit, the switch is `waiting` again, and all nodes report anew. This module uses no clock, socket or model.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from services.runtime.control import REPORT_STAGES, ReportStage, StrategySwitchDecision, SwitchStageReport
from services.schema.errors import ProtocolError
from services.strategies.switching.rules import LossEvaluation, SwitchRuleDecision, SwitchRuleState
from services.strategies.switching.switch import TrainingPhaseSwitch

SwitchStage: TypeAlias = Literal["waiting", "stopping", "loading", "over"]
Digests: TypeAlias = tuple[str, ...]
# Name of a node, and whether it reports as a server: one node may be a worker and a server.
Participant: TypeAlias = tuple[str, bool]


@dataclass(frozen=True)
class LogRuleDecisionAction:
    """Action: log the decision of the switch rule after an evaluation of the model.

    The switch rule decides, from the losses, whether the training strategy switches.
    """

    point: LossEvaluation
    decision: SwitchRuleDecision


@dataclass(frozen=True)
class StartSwitchAction:
    """Action: stop all nodes for a strategy switch between two training steps."""


@dataclass(frozen=True)
class AnnounceDecisionAction:
    """Action: answer the reports of nodes with a decision on the strategy switch.

    The decision answers all reports of the stage `stage`, those that have arrived and those that arrive later.
    """

    stage: ReportStage
    decision: StrategySwitchDecision
    param_digests: Digests = ()  # of the model that all nodes agree on, by range of the parameter vector
    state_digests: Digests = ()


SwitchAction: TypeAlias = LogRuleDecisionAction | StartSwitchAction | AnnounceDecisionAction


@dataclass
class StrategySwitchStateMachine:
    """State machine of one strategy switch, which either all nodes or no nodes carry out.

    All nodes commit the switch, or all nodes abort it.
    """

    switch: TrainingPhaseSwitch
    worker_names: tuple[str, ...]  # node names by rank
    server_names: tuple[str, ...]  # names of the shard owners, by shard; workers may be among them
    stage: SwitchStage = "waiting"
    is_committed: bool = False
    _rule_state: SwitchRuleState = field(default_factory=SwitchRuleState)
    _reports: dict[ReportStage, dict[Participant, SwitchStageReport]] = field(
        default_factory=lambda: {stage: {} for stage in REPORT_STAGES}
    )

    def handle_loss_evaluation(self, loss_evaluation: LossEvaluation, *, may_switch: bool) -> list[SwitchAction]:
        """Apply the rule for strategy switches to the losses of an evaluation.

        Start the switch if the rule fires and `may_switch` is set.
        """
        decision, self._rule_state = self.switch.rule.decide_strategy_switch(loss_evaluation, self._rule_state)
        action = LogRuleDecisionAction(loss_evaluation, decision)
        return [action, *self._start_strategy_switch()] if decision.fires and may_switch else [action]

    def handle_node_report(self, node_report: SwitchStageReport) -> list[SwitchAction]:
        """Record that a node has stopped for a strategy switch, or has loaded the model.

        Repeated or late reports are ignored.

        Raises:
            ProtocolError: the node does not belong to this run, or is ahead of other nodes.
        """
        if node_report.node_name not in (self.server_names if node_report.is_server else self.worker_names):
            role = "server" if node_report.is_server else "worker"
            raise ProtocolError(f"{node_report.node_name} can't switch its strategy: it is not a {role} of the run")
        participant = node_report.node_name, node_report.is_server
        if self.stage == "over" or participant in self._reports[node_report.stage]:
            return []
        if node_report.stage == "loaded" and self.stage != "loading":
            raise ProtocolError(f"{node_report.node_name} reported `loaded` before all nodes have reported `stopped`")
        self._reports[node_report.stage][participant] = node_report
        if node_report.failure:
            return [*self._start_strategy_switch(), *self.abort(f"{node_report.node_name}: {node_report.failure}")]
        return [*self._start_strategy_switch(), *self._decide_if_all_reported(node_report.stage)]

    def change_workers(self, worker_names: tuple[str, ...]) -> None:
        """Begin the switch anew with other workers, by rank, unless it is over.

        All nodes report again in the new membership epoch: what they have stopped or loaded before does not count.
        """
        if self.stage == "over":
            return
        self.worker_names, self.stage = worker_names, "waiting"
        self._reports = {stage: {} for stage in REPORT_STAGES}

    def abort(self, abort_reason: str) -> list[SwitchAction]:
        """Abort the strategy switch unless it is over.

        After an abort, all nodes continue with the strategy before the switch.
        """
        if self.stage == "over":
            return []
        self.stage, decision = "over", StrategySwitchDecision("abort", abort_reason)
        return [AnnounceDecisionAction(stage, decision) for stage in REPORT_STAGES]

    def _start_strategy_switch(self) -> list[SwitchAction]:
        if self.stage != "waiting":
            return []
        self.stage = "stopping"
        return [StartSwitchAction()]

    def _decide_if_all_reported(self, report_stage: ReportStage) -> list[SwitchAction]:
        """Return the announcement of the coordinator's decision on a strategy switch.

        Return an empty list while some nodes have not reported the given stage.
        """
        reports = self._reports[report_stage]
        if len(reports) < len(self.worker_names) + len(self.server_names):
            return []
        if reason := next(self._model_inconsistencies(reports), ""):
            return self.abort(reason)
        param_digests, state_digests = self._model_digests(self._reports["stopped"])
        pending = sorted(self._nodes_lacking_model_parts(reports, param_digests, state_digests))
        if not pending:
            self.stage, self.is_committed = "over", True
            return [
                AnnounceDecisionAction(report_stage, self._make_switch_decision("commit"), param_digests, state_digests)
            ]
        if report_stage == "loaded":
            return self.abort(f"the model loaded by {', '.join(pending)} differs from the model that was sent")
        self.stage = "loading"
        return [AnnounceDecisionAction(report_stage, self._make_switch_decision("load"), param_digests, state_digests)]

    def _select_worker_reports(self, node_reports: Mapping[Participant, SwitchStageReport]) -> list[SwitchStageReport]:
        """Return the reports of all workers in a strategy switch, in the order of their ranks."""
        return [node_reports[name, False] for name in self.worker_names]

    def _select_server_reports(self, node_reports: Mapping[Participant, SwitchStageReport]) -> list[SwitchStageReport]:
        """Return the reports of all servers in a strategy switch, in the order of their shards."""
        return [node_reports[name, True] for name in self.server_names]

    @property
    def _do_servers_own_model(self) -> bool:
        """Whether servers, not workers, own the model parameters before the strategy switch."""
        return self.switch.first.server_algorithm() is not None

    def _model_inconsistencies(self, node_reports: Mapping[Participant, SwitchStageReport]) -> Iterator[str]:
        """Yield each difference between the nodes' copies of the model.

        Compared are the copies of the workers, or the versions of the servers.
        """
        workers, servers = self._select_worker_reports(node_reports), self._select_server_reports(node_reports)
        has_equal_replicas = self.switch.first.describe_worker_exchange().has_equal_replicas
        models = {(state.next_step, state.params_digests, state.state_digests) for state in workers}
        if has_equal_replicas and len(models) > 1:
            yield "replicas differ: " + ", ".join(f"{state.node_name} at step {state.next_step}" for state in workers)
        if self._do_servers_own_model and len({(state.version, state.samples) for state in servers}) > 1:
            yield "servers differ: " + ", ".join(f"{state.node_name} at version {state.version}" for state in servers)
        have_workers_params = self._do_servers_own_model and has_equal_replicas
        if have_workers_params and workers[0].params_digests != self._model_digests(self._reports["stopped"])[0]:
            yield "workers and servers have different parameters"

    def _model_digests(self, node_reports: Mapping[Participant, SwitchStageReport]) -> tuple[Digests, Digests]:
        """Return the digests of the model before the strategy switch.

        The first digests are those of the parameters, the second those of the optimiser's state, each with one digest
        per shard. They come from the servers if servers own the model, otherwise from the worker with rank 0.
        """
        if not self._do_servers_own_model:
            first_worker, *_ = self._select_worker_reports(node_reports)
            return first_worker.params_digests, first_worker.state_digests
        servers = self._select_server_reports(node_reports)
        return tuple(state.params_digests[0] for state in servers), tuple(state.state_digests[0] for state in servers)

    def _nodes_lacking_model_parts(
        self, reports: Mapping[Participant, SwitchStageReport], param_digests: Digests, optimiser_digests: Digests
    ) -> Iterator[str]:
        """Yield the names of the nodes that lack a part of the model for the next strategy.

        The parts are parameters and optimiser state; the next strategy is the strategy after the switch.
        """
        transfer = self.switch.model_transfer_plan
        receivers = {
            "servers": self._select_server_reports(reports),
            "workers": self._select_worker_reports(reports),
            "none": [],
        }
        for number, report in enumerate(receivers[transfer.receivers]):
            ranges = slice(number, number + 1) if transfer.receivers == "servers" else slice(None)
            lacks_params = transfer.includes_params and report.params_digests != param_digests[ranges]
            lacks_state = transfer.includes_slots and report.state_digests != optimiser_digests[ranges]
            if lacks_params or lacks_state:
                yield report.node_name

    def _make_switch_decision(self, load_or_commit: Literal["load", "commit"]) -> StrategySwitchDecision:
        """Return the decision to load the model or to commit the strategy switch.

        The decision contains the first step of the second strategy: the next step of the fastest worker. Asynchronous
        workers skip the steps in between, and do not see their shares of these batches: a step number identifies the
        batch and the messages of all workers. Budgets count the samples in updates, so other samples are used instead.
        """
        reports = self._reports["stopped"]
        workers = self._select_worker_reports(reports)
        model_owner = self._select_server_reports(reports)[0] if self._do_servers_own_model else workers[0]
        step = max(report.next_step for report in workers)
        return StrategySwitchDecision(
            load_or_commit, "", step, model_owner.version, model_owner.samples, model_owner.updates
        )
