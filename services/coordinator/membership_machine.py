"""State machine by which the coordinator finds lost nodes and changes the membership of a training.

It receives heartbeats and reports with their times, and returns actions. This module uses no clock and no socket.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from services.runtime.membership import Membership, RecoveryDecision, RecoveryReport
from services.scenario.recovery import RecoverySettings
from services.schema.errors import EvictedError, ProtocolError


@dataclass(frozen=True)
class NodeLostAction:
    """Action: log that a node is lost, and remove it from the run."""

    node_name: str
    silent_s: float  # virtual seconds since its last heartbeat


@dataclass(frozen=True)
class NodeRestartedAction:
    """Action: log that a node was lost, but was started again before its silence was noticed."""

    node_name: str
    silent_s: float  # virtual seconds since its last heartbeat, or since it joined again


@dataclass(frozen=True)
class BeginMembershipEpochAction:
    """Action: announce a new membership to all nodes; they stop the step in progress and report recovery steps."""

    membership: Membership
    cause: str


@dataclass(frozen=True)
class DecideRecoveryAction:
    """Action: answer the recovery reports of all nodes of the epoch with the step from which they continue."""

    decision: RecoveryDecision


@dataclass(frozen=True)
class FailRunAction:
    """Action: end the run with an error, because it can't go on without a lost node."""

    reason: str


MembershipAction: TypeAlias = (
    NodeLostAction | NodeRestartedAction | BeginMembershipEpochAction | DecideRecoveryAction | FailRunAction
)


@dataclass
class MembershipStateMachine:
    """State machine of the membership of one training.

    Times are arguments, in virtual seconds since any moment.
    """

    settings: RecoverySettings
    worker_names: tuple[str, ...]  # all workers of the plan, by rank
    server_names: tuple[str, ...] = ()  # nodes that own a shard and are not workers
    needs_common_step: bool = True  # whether all nodes continue from one step; otherwise each goes on where it is
    is_gossip: bool = False  # whether a worker may need other workers after the first one has finished its work
    are_servers_idle: bool = False  # whether servers have no state yet, because only a later training phase uses them
    membership: Membership = field(init=False)
    _last_heartbeat_s: dict[str, float] = field(default_factory=dict)  # of the nodes that are watched
    _evicted: set[str] = field(default_factory=set)
    _left: set[str] = field(default_factory=set)  # nodes that have finished their work
    # Nodes that have joined again and are not members yet -> when they joined.
    _waiting: dict[str, float] = field(default_factory=dict)
    _reports: dict[str, RecoveryReport] = field(default_factory=dict)  # of the current epoch, while it is undecided
    _is_decided: bool = field(init=False)

    def __post_init__(self) -> None:
        self.membership = Membership(0, self.worker_names)
        self._is_decided = (
            self.settings.checkpoint is None
        )  # else nodes begin with the last checkpoint, if there is one

    @property
    def is_recovering(self) -> bool:
        """Whether nodes still have to agree on the step from which they continue; no node leaves meanwhile."""
        return not self._is_decided

    @property
    def active_members(self) -> frozenset[str]:
        """Workers of the current epoch and servers that are neither lost nor have left."""
        return frozenset({*self.membership.workers, *self.server_names} - self._evicted - self._left)

    def start_watching(self, now_s: float) -> None:
        """Expect heartbeats of all nodes from now on."""
        self._last_heartbeat_s = dict.fromkeys((*self.worker_names, *self.server_names), now_s)

    def handle_heartbeat(self, node_name: str, now_s: float) -> None:
        """Record a heartbeat.

        Raises:
            EvictedError: the node has been considered lost.
        """
        self.check_not_evicted(node_name)
        if node_name in self._last_heartbeat_s:
            self._last_heartbeat_s[node_name] = now_s

    def check_not_evicted(self, node_name: str) -> None:
        """Raise an error if the calling node is considered lost.

        Raises:
            EvictedError: the node is considered lost, and training goes on without it.
        """
        if node_name in self._evicted:
            raise EvictedError(
                f"{node_name} sent no heartbeat for {self.settings.heartbeat_timeout}, so training goes on without it"
            )

    def excuse_silence(self, late_s: float, now_s: float) -> None:
        """Do not count the seconds for which the coordinator was stopped, when a check for lost nodes is late.

        Heartbeats of this time may still wait to be read. A delay shorter than the interval of heartbeats counts.
        """
        if late_s > self.settings.heartbeat_interval_s:
            self._last_heartbeat_s = {
                name: min(now_s, last_s + late_s) for name, last_s in self._last_heartbeat_s.items()
            }

    def find_lost_nodes(self, now_s: float) -> list[MembershipAction]:
        """Return the actions for all nodes whose heartbeats are overdue."""
        lost = {
            name: now_s - last_s
            for name, last_s in self._last_heartbeat_s.items()
            if now_s - last_s > self.settings.heartbeat_timeout
        }
        if not lost:
            return []
        for name in lost:
            del self._last_heartbeat_s[name]
            self._evicted.add(name)
            self._waiting.pop(name, None)
        actions: list[MembershipAction] = [NodeLostAction(name, silent_s) for name, silent_s in lost.items()]
        lost_servers = [name for name in lost if name in self.server_names]
        if lost_servers and self.settings.on_failure != "restore":
            reason = f"{lost_servers[0]} is lost, and its shard with it; only on_failure: restore recovers it"
            return [*actions, FailRunAction(reason)]
        return [*actions, *self._change_members(lost, f"{' and '.join(lost)} lost", now_s)]

    def handle_leave(self, node_name: str) -> None:
        """Record that a node has finished its work; no more heartbeats are expected from it."""
        self._last_heartbeat_s.pop(node_name, None)
        self._left.add(node_name)

    def handle_strategy_switch(self, *, needs_common_step: bool) -> None:
        """Record that a second training phase has begun, in which servers may train.

        Args:
            needs_common_step: whether the second phase is synchronous.
        """
        self.needs_common_step, self.are_servers_idle = needs_common_step, False

    def handle_rejoin(self, node_name: str, now_s: float) -> list[MembershipAction]:
        """Record that a lost node has been started again, and wants to join the training.

        Raises:
            EvictedError: the policy does not let lost workers join again.
            ProtocolError: the node does not belong to the run.
        """
        if node_name not in (*self.worker_names, *self.server_names):
            raise ProtocolError(f"{node_name} can't join again: it is not a node of this run")
        if not self.settings.restarts_workers:
            raise EvictedError(f"{node_name} can't join again under on_failure: {self.settings.on_failure}")
        if self._left.intersection(self.worker_names):
            raise EvictedError(f"{node_name} can't join again: the training is over")
        actions: list[MembershipAction] = []
        # A node sends heartbeats from the begin of its epoch on. Without any time, it was already considered lost.
        last_s = self._last_heartbeat_s.pop(node_name, self._waiting.get(node_name))
        if last_s is not None:
            actions.append(NodeRestartedAction(node_name, now_s - last_s))
        self._waiting[node_name] = now_s
        self._evicted.discard(node_name)
        lost = {node_name} & set(self.membership.workers)  # it was restarted before its loss was noticed
        return [*actions, *self._change_members(lost, f"{node_name} joined again", now_s)]

    def handle_recovery_report(self, report: RecoveryReport) -> list[MembershipAction]:
        """Record from which steps a node can continue.

        Reports of earlier epochs are ignored: their senders get a decision with the current epoch.

        Raises:
            EvictedError: the node has been considered lost.
            ProtocolError: the node is no member, or the epoch does not exist yet.
        """
        if report.node_name in self._evicted:
            raise EvictedError(f"{report.node_name} was considered lost before it could continue")
        if report.epoch < self.membership.epoch:
            return []
        if report.epoch > self.membership.epoch or report.node_name not in (
            *self.membership.workers,
            *self.server_names,
        ):
            raise ProtocolError(f"{report.node_name} can't recover in membership epoch {report.epoch}")
        if not self._is_decided:
            self._reports[report.node_name] = report
        return self._decide_if_all_reported()

    def _change_members(self, lost: Iterable[str], cause: str, now_s: float) -> list[MembershipAction]:
        """Return the actions of a new membership without `lost` and with the workers that wait to join."""
        is_over = self.needs_common_step and bool(self._left.intersection(self.worker_names))
        if is_over and not self.is_gossip:
            return []  # synchronous training is over for all workers when the first one leaves
        gone = self._left if self.is_gossip else set()
        lost = set(lost)
        if self.settings.on_failure == "abort":
            return [FailRunAction(cause)]
        if self.settings.on_failure == "restore" and self._evicted:
            return []  # training waits for the restarted worker
        kept = set(self.membership.workers) - lost - self._evicted - gone
        members = [name for name in self.worker_names if name in self._waiting or name in kept]
        if not members and gone:
            return []
        has_state = [name for name in members if name not in self._waiting]
        if not has_state and self.settings.on_failure != "restore":
            return [FailRunAction(f"no worker has the state of the training any more: {cause}")]
        joined = tuple(name for name in (*self.worker_names, *self.server_names) if name in self._waiting)
        self.membership = Membership(
            self.membership.epoch + 1, tuple(members), joined, needs_common_step=self.needs_common_step
        )
        self._last_heartbeat_s |= dict.fromkeys(joined, now_s)
        self._reports, self._is_decided = {}, not self.needs_common_step
        return [BeginMembershipEpochAction(self.membership, cause)]

    def _decide_if_all_reported(self) -> list[MembershipAction]:
        """Return the decision once all nodes of the epoch have reported.

        Nodes continue from the last step for which all nodes with a state have kept one.
        """
        expected = {*self.membership.workers, *(() if self.are_servers_idle else self.server_names)}
        if self._is_decided or set(self._reports) < expected:
            return []
        kept = {name: set(report.steps) for name, report in self._reports.items() if report.steps}
        receivers = tuple(name for name in self.membership.workers if name not in kept)
        senders = [name for name in self.membership.workers if name in kept]
        common = set.intersection(*kept.values()) if senders else set()
        if not common or (receivers and self.settings.on_failure != "rejoin"):
            stored = "; ".join(
                f"{name}: {', '.join(map(str, report.steps)) or 'none'}" for name, report in self._reports.items()
            )
            return [
                FailRunAction(f"all nodes together have no step from which they can continue; steps by node: {stored}")
            ]
        self._is_decided = True
        for name in self.membership.joined:
            self._waiting.pop(name, None)
        source = senders[0] if receivers else ""
        return [DecideRecoveryAction(RecoveryDecision(self.membership.epoch, max(common), source, receivers))]
