"""Membership calls of the nodes in the coordinator: heartbeats, announcements of epochs, and recovery decisions."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from services.coordinator.membership_machine import (
    BeginMembershipEpochAction,
    DecideRecoveryAction,
    FailRunAction,
    MembershipAction,
    MembershipStateMachine,
    NodeLostAction,
    NodeRestartedAction,
)
from services.runtime.clock import Clock
from services.runtime.membership import Membership, RecoveryDecision, RecoveryReport
from services.runtime.run_log import RunLog
from services.schema.errors import NodeLossError


@dataclass
class MembershipCalls:
    """Executes the actions of the membership's state machine, and keeps calls waiting until their reply is known."""

    machine: MembershipStateMachine
    clock: Clock
    log: RunLog
    on_node_lost: Callable[[str], Awaitable[None]]  # removes the node from the run
    on_membership: Callable[[Membership], None]  # changes the workers of the run
    _epoch_begun: asyncio.Condition = field(default_factory=asyncio.Condition)
    _decisions: dict[int, RecoveryDecision] = field(default_factory=dict)  # by epoch
    _epoch_start_s: float = 0.0
    _failure_reason: str = ""

    def start_watching(self) -> None:
        """Expect heartbeats of all nodes from now on."""
        self.machine.start_watching(self.clock.now())

    async def watch_heartbeats(
        self, run_finished: asyncio.Event, wait_until_running: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Find lost nodes until the run is over.

        Args:
            run_finished: set when the run is over.
            wait_until_running: returns when the coordinator is not frozen; None if its whole process is frozen.

        Raises:
            NodeLossError: the training can't go on without a lost node.
        """
        while not run_finished.is_set():
            due_s = self.clock.now() + self.machine.settings.heartbeat_interval_s
            await self.clock.sleep_until(due_s)
            if wait_until_running is not None:
                await wait_until_running()
            self.machine.excuse_silence(self.clock.now() - due_s, self.clock.now())
            await self._run_actions(self.machine.find_lost_nodes(self.clock.now()))
            if self._failure_reason:
                raise NodeLossError(self._failure_reason)

    def handle_heartbeat(self, node_name: str) -> None:
        """Record a heartbeat of a node."""
        self.machine.handle_heartbeat(node_name, self.clock.now())

    async def rejoin(self, node_name: str) -> None:
        """Let a restarted worker join again, and return when a membership epoch with it has begun."""
        epoch_before = self.machine.membership.epoch  # with which the node may have joined again after an earlier loss
        await self._run_actions(self.machine.handle_rejoin(node_name, self.clock.now()))
        async with self._epoch_begun:
            await self._epoch_begun.wait_for(
                lambda: self.machine.membership.epoch > epoch_before and node_name in self.machine.membership.joined
            )

    async def await_membership(self, known_epoch: int) -> Membership:
        """Wait until a membership epoch after `known_epoch` begins, and return its membership."""
        async with self._epoch_begun:
            await self._epoch_begun.wait_for(lambda: self.machine.membership.epoch > known_epoch)
        return self.machine.membership

    async def report_recovery_steps(self, report: RecoveryReport) -> RecoveryDecision:
        """Record from which steps a node can continue, and return the decision.

        If another epoch begins first, the decision names that epoch.
        """
        await self._run_actions(self.machine.handle_recovery_report(report))
        async with self._epoch_begun:
            await self._epoch_begun.wait_for(
                lambda: report.epoch in self._decisions or self.machine.membership.epoch > report.epoch
            )
        return self._decisions.get(report.epoch) or RecoveryDecision(self.machine.membership.epoch, 0)

    async def _run_actions(self, actions: list[MembershipAction]) -> None:
        for action in actions:
            match action:
                case NodeLostAction(node_name, silent_s):
                    self._log_loss(node_name, silent_s, f"no heartbeat for {silent_s:.3g} s", is_back=False)
                    await self.on_node_lost(node_name)
                case NodeRestartedAction(node_name, silent_s):
                    reason = f"started again after {silent_s:.3g} s without a heartbeat"
                    self._log_loss(node_name, silent_s, reason, is_back=True)
                case BeginMembershipEpochAction(membership, cause):
                    self._begin_epoch(membership, cause)
                case DecideRecoveryAction(decision):
                    self._announce_decision(decision)
                case FailRunAction(reason):
                    self._failure_reason = reason
        if actions:
            async with self._epoch_begun:
                self._epoch_begun.notify_all()

    def _log_loss(self, node_name: str, silent_s: float, reason: str, *, is_back: bool) -> None:
        """Log the loss of a node; `is_back` shows whether it was started again before its silence was noticed."""
        value = {"node": node_name, "reason": reason, "silent_s": round(silent_s, 6), "is_back": is_back}
        self.log.log_event("node_lost", value)

    def _begin_epoch(self, membership: Membership, cause: str) -> None:
        self._epoch_start_s = self.clock.now()
        value = {"epoch": membership.epoch, "workers": list(membership.workers), "joined": list(membership.joined)}
        self.log.log_event("membership_epoch", {**value, "cause": cause})
        self.on_membership(membership)

    def _announce_decision(self, decision: RecoveryDecision) -> None:
        self._decisions[decision.epoch] = decision
        if not decision.epoch:
            return  # the start of the training, maybe from a checkpoint
        seconds = round(self.clock.now() - self._epoch_start_s, 6)
        self.log.log_event(
            "membership_recovery", {"epoch": decision.epoch, "seconds": seconds}, step=decision.first_step
        )
