"""Asynchronous training of a worker that goes on without a break when other workers are lost."""

import asyncio
from dataclasses import dataclass

from services.runtime.membership_follower import MembershipFollower
from services.worker.runtime import WorkerRuntime


@dataclass(frozen=True)
class UninterruptedTraining:
    """Training of one worker over all membership epochs.

    Servers no longer wait for lost workers, so this worker has nothing to change, except that it becomes the evaluation
    worker if all workers before it are lost.
    """

    worker: WorkerRuntime
    follower: MembershipFollower

    async def train(self) -> None:
        """Train to the end of the run."""
        await self.follower.begin()
        if self.follower.membership.epoch:  # workers were lost before this one knew the membership
            self._follow_evaluation_worker()
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._follow_membership())
            await self.worker.train()
            following.cancel()

    async def _follow_membership(self) -> None:
        while True:
            await self.follower.await_change()
            self._follow_evaluation_worker()

    def _follow_evaluation_worker(self) -> None:
        """Become the evaluation worker if all workers before this one are lost."""
        self.worker.is_evaluation_worker = self.follower.membership.workers[0] == self.worker.node.name
