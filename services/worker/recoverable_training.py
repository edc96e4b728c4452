"""Training of a worker that goes on when other workers are lost or join again."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from services.runtime.clock import Clock
from services.runtime.membership import Membership, MembershipClient, RecoveryDecision, RecoveryReport
from services.runtime.run_log import RunLog
from services.schema.errors import EvictedError, NetworkError, first_error_in_group
from services.worker.runtime import WorkerRuntime
from services.worker.training_position import RecoveryPoints, TrainingPosition


@dataclass
class RecoverableTraining:
    """Training of one worker over all membership epochs.

    A step in progress is broken off when the membership changes. It leaves nothing half applied, because a step returns
    new parameters and a new state. All workers continue from the last step that they have in common.
    """

    worker: WorkerRuntime  # of the current membership epoch
    regroup: Callable[[WorkerRuntime, Membership], WorkerRuntime]
    membership_client: MembershipClient
    points: RecoveryPoints
    clock: Clock
    log: RunLog
    detection_s: float  # virtual seconds within which the loss of another node is announced
    membership: Membership = field(default_factory=lambda: Membership(0, ()))

    async def train(self) -> WorkerRuntime:
        """Train to the end of the run, and return the worker of the last membership epoch.

        Raises:
            EvictedError: training goes on without this worker.
            NetworkError: another node can't be reached, although no node was lost.
        """
        self.membership = await self.membership_client.await_membership(-1)
        position: TrainingPosition | None = None
        if self.membership.epoch:
            position = await self._recover(self.clock.now())
        while not await self._train_until_membership_changes(position):
            position = await self._recover(self.clock.now())
        return self.worker

    async def _train_until_membership_changes(self, position: TrainingPosition | None) -> bool:
        """Train from a position on, and return whether the training is complete.

        Otherwise the membership has changed.
        """
        change = asyncio.create_task(self.membership_client.await_membership(self.membership.epoch))
        training = asyncio.create_task(self.worker.train(position, self.points.add))
        try:
            await asyncio.wait({training, change}, return_when=asyncio.FIRST_COMPLETED)
            if training.done() and not training.cancelled() and training.exception() is None:
                return True
            if training.done() and not change.done():
                await self._await_change_after_error(training, change)
            self.membership = change.result()
            return False
        finally:
            for task in (training, change):
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task

    async def _await_change_after_error(
        self, training: "asyncio.Task[None]", change: "asyncio.Task[Membership]"
    ) -> None:
        """Wait for a new membership after a step has failed.

        Raises:
            NetworkError: no node was lost.
        """
        error = training.exception()
        if error is None or not isinstance(first_error_in_group(error), NetworkError):
            training.result()
        await asyncio.wait({change}, timeout=self.clock.to_wall_s(self.detection_s))
        if not change.done():
            training.result()

    async def _recover(self, start_s: float) -> TrainingPosition | None:
        """Agree with all members on a step, and return the position of this worker before this step."""
        decision = await self._agree_on_first_step()
        position = self.points.go_back_to(decision.first_step)
        self.worker = self.regroup(self.worker, self.membership)
        value = {"epoch": self.membership.epoch, "seconds": round(self.clock.now() - start_s, 6)}
        self.log.log_event("recovery", value, step=decision.first_step)
        return position

    async def _agree_on_first_step(self) -> RecoveryDecision:
        while True:
            name = self.worker.node.name
            if name not in self.membership.workers:
                raise EvictedError(f"training goes on without {name} since membership epoch {self.membership.epoch}")
            report = RecoveryReport(name, self.membership.epoch, self.points.steps)
            decision = await self.membership_client.report_recovery_steps(report)
            if decision.epoch == self.membership.epoch:
                return decision
            self.membership = await self.membership_client.await_membership(self.membership.epoch)
