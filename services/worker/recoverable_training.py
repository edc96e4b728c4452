"""Training of a worker that goes on when other workers are lost or join again."""

from collections.abc import Callable
from dataclasses import dataclass

from services.runtime.membership import Membership
from services.runtime.membership_follower import MembershipFollower
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
    follower: MembershipFollower
    points: RecoveryPoints

    async def train(self) -> WorkerRuntime:
        """Train to the end of the run, and return the worker of the last membership epoch.

        Raises:
            EvictedError: training goes on without this worker.
            NetworkError: another node can't be reached, although no node was lost.
        """
        await self.follower.begin()
        position: TrainingPosition | None = None
        if self.follower.membership.epoch:
            position = await self._recover()
        while not await self.follower.run_until_change(self.worker.train(position, self.points.add)):
            position = await self._recover()
        return self.worker

    async def _recover(self) -> TrainingPosition:
        """Agree with all nodes on a step, and return the position of this worker before this step."""
        decision = await self.follower.agree_on_first_step(self.points.steps)
        position = self.points.go_back_to(decision.first_step)
        self.worker = self.regroup(self.worker, self.follower.membership)
        self.follower.log_recovery(decision.first_step)
        return position
