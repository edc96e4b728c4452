"""A node's part in changes of the membership: breaking off its work, and agreeing on a step to continue from."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.runtime.cancellation import cancel_tasks
from services.runtime.clock import Clock
from services.runtime.membership import Membership, MembershipClient, RecoveryDecision, RecoveryReport
from services.runtime.run_log import RunLog
from services.schema.errors import EvictedError, NetworkError, first_error_in_group


def do_nothing() -> None:
    """Do nothing after a change of the membership."""


@dataclass
class MembershipFollower:
    """Follows the membership of a training for one worker or server."""

    node_name: str
    is_server: bool
    client: MembershipClient
    clock: Clock
    log: RunLog
    announcement_timeout_s: float  # virtual seconds after an error within which the loss of its cause is announced
    on_unbroken_change: Callable[[], None] = do_nothing  # called after a change that breaks off no work
    membership: Membership = field(default_factory=lambda: Membership(0, ()))
    _change_s: float = 0.0  # when this node learned of the last change

    async def begin(self) -> None:
        """Learn the membership with which this node begins."""
        self.membership = await self.client.await_membership(-1)
        self._change_s = self.clock.now()

    async def await_change(self) -> None:
        """Wait for the next membership."""
        self.membership = await self.client.await_membership(self.membership.epoch)
        self._change_s = self.clock.now()

    async def run_until_change(self, work: Coroutine[Any, Any, object], *, awaits_losses: bool = False) -> bool:
        """Run work until a membership epoch begins that breaks it off, and return whether the work is complete.

        Epochs of asynchronous training break nothing off. This object follows them, and calls `on_unbroken_change`.

        Args:
            work: the work of this node.
            awaits_losses: whether the work itself waits for the announcement of a loss before it raises an error.

        Raises:
            EvictedError: training goes on without this node.
            NetworkError: another node can't be reached, although no node was lost.
        """
        change = asyncio.create_task(self.client.await_membership(self.membership.epoch))
        task = asyncio.create_task(work)
        try:
            while True:
                await asyncio.wait({task, change}, return_when=asyncio.FIRST_COMPLETED)
                if not change.done() and task.done() and not _has_ended_without_network_error(task):
                    timeout_s = 0.0 if awaits_losses else self.announcement_timeout_s
                    await asyncio.wait({change}, timeout=self.clock.to_wall_s(timeout_s))
                    await self.client.send_heartbeat()  # this node may be the lost one, after it was frozen
                if not change.done() or (task.done() and _has_ended_without_network_error(task)):
                    task.result()
                    return True
                self.membership, self._change_s = change.result(), self.clock.now()
                if self.membership.needs_common_step:
                    return False
                self.on_unbroken_change()
                change = asyncio.create_task(self.client.await_membership(self.membership.epoch))
        finally:
            await cancel_tasks(task, change)

    async def agree_on_first_step(self, kept_steps: Sequence[int]) -> RecoveryDecision:
        """Agree with all nodes on the step from which they continue, and return the decision.

        Args:
            kept_steps: steps from which this node can continue.

        Raises:
            EvictedError: training goes on without this node.
        """
        while True:
            if not self.is_server and self.node_name not in self.membership.workers:
                raise EvictedError(
                    f"training goes on without {self.node_name} since membership epoch {self.membership.epoch}"
                )
            report = RecoveryReport(self.node_name, self.membership.epoch, tuple(kept_steps))
            decision = await self.client.report_recovery_steps(report)
            if decision.epoch == self.membership.epoch:
                return decision
            self.membership = await self.client.await_membership(self.membership.epoch)

    def log_recovery(self, first_step: int) -> None:
        """Log that this node continues in a new membership epoch, and how long it has not worked for that."""
        value = {"epoch": self.membership.epoch, "seconds": round(self.clock.now() - self._change_s, 6)}
        self.log.log_event("recovery", value, step=first_step)


def _has_ended_without_network_error(task: "asyncio.Task[Any]") -> bool:
    """Return whether a task is complete, or has failed for a reason that no lost node explains."""
    if task.cancelled():
        return False
    error = task.exception()
    return error is None or not isinstance(first_error_in_group(error), NetworkError)
