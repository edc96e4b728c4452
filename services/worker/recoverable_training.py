"""Training of a worker that goes on after the loss of a worker, and that can begin with a checkpoint."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from services.checkpoints.node_checkpoints import NodeCheckpoints, follow_announcements
from services.checkpoints.state_transfer import receive_state, send_state
from services.runtime.control import FinalNodeReport
from services.runtime.membership import Membership, RecoveryDecision
from services.runtime.membership_follower import MembershipFollower
from services.worker.runtime import WorkerRuntime
from services.worker.training_position import (
    RecoveryPoints,
    TrainingPosition,
    export_position,
    import_position,
)

# Limit on the state that another worker sends.
MAX_STATE_BYTES_PER_PARAMETER = 64 * 8  # for parameters, state of the optimiser and the algorithm; each of 64 bits
MAX_OTHER_STATE_BYTES = 1 << 20  # arrays whose length does not depend on the model


@dataclass
class RecoverableTraining:
    """Training of one worker over all membership epochs.

    A step in progress is broken off when the membership changes. It leaves nothing half applied, because a step returns
    new parameters and a new state. All workers continue from the last step that they have in common: a step in memory,
    or that of a checkpoint. After a strategy switch to asynchronous training, membership changes break off nothing.
    """

    worker: WorkerRuntime  # of the current membership epoch
    regroup: Callable[[WorkerRuntime, Membership], WorkerRuntime]
    follower: MembershipFollower
    points: RecoveryPoints
    checkpoints: NodeCheckpoints | None  # None: no checkpoint is written
    continues_from_checkpoints: bool  # whether nodes go back to a checkpoint after a loss, not to a step in memory
    leave: Callable[[FinalNodeReport], Awaitable[None]]  # leaves the run
    continues_other_trial: bool = False  # whether the checkpoint of the first step is that of another trial
    _is_leaving: bool = False
    _is_restarted: bool = False  # whether this worker was started again after a loss; else it may not have begun yet

    async def train(self) -> WorkerRuntime:
        """Train to the end of the run, leave it, and return the worker of the last membership epoch.

        Raises:
            CheckpointError: a checkpoint can't be written or read.
            EvictedError: training goes on without this worker.
            NetworkError: another node can't be reached, although no node was lost.
        """
        self.follower.on_unbroken_change = self._follow_evaluation_worker
        await self.follower.begin()
        self._is_restarted = self.worker.node.name in self.follower.membership.joined
        position = await self._begin() if self.follower.membership.epoch or self.checkpoints else None
        while not await self.follower.run_until_change(self._train_and_leave(position)):
            if self._is_leaving and self.worker.node.name not in self.follower.membership.workers:
                break  # it has left, and the others continue without it
            position = await self._recover()
        return self.worker

    def _follow_evaluation_worker(self) -> None:
        """Become the evaluation worker of an asynchronous second phase if all workers before this one are lost."""
        self.worker.is_evaluation_worker = self.follower.membership.workers[0] == self.worker.node.name

    async def _train_and_leave(self, position: TrainingPosition | None) -> None:
        """Train to the end of the run, and leave it.

        Other workers may still need this one until it has left: if the membership changes before, it recovers, too.
        """
        self._is_leaving = False
        async with follow_announcements(self.checkpoints, self.follower.membership):
            await self.worker.train(position, self._keep_position)
        self._is_leaving = True
        await self.leave(self.worker.final_report)

    async def _begin(self) -> TrainingPosition | None:
        """Return the position from which this worker begins.

        If the membership has changed, all nodes agree on it again; otherwise it is that of a checkpoint.
        """
        if not self.follower.membership.epoch:
            assert self.checkpoints is not None  # noqa: S101 - the caller has checked it
            decision = await self.follower.agree_on_first_step(self.checkpoints.list_steps())
            if not self.follower.membership.epoch:
                return self._read_checkpoint(self.checkpoints, decision.first_step)
        return await self._recover()  # maybe a node was lost before all had agreed

    async def _keep_position(self, position: TrainingPosition) -> None:
        """Keep a position in memory, write a checkpoint if one is due, and propose the next one if it is time."""
        self.points.add(position)
        if self.checkpoints is None:
            return
        if self.checkpoints.is_due(position.next_step):
            self.worker.step_log.flush()  # a trial that continues from the checkpoint needs the log of all steps
            state, epoch = export_position(position), self.follower.membership.epoch
            await self.checkpoints.write(position.next_step, epoch, position.result.samples, state)
        await self.checkpoints.schedule.propose_next(position.next_step)

    async def _recover(self) -> TrainingPosition | None:
        """Agree with all nodes on a step, and return the position of this worker before this step.

        Return None if training begins anew. A further change of the membership begins the recovery anew.
        """
        while True:
            decision = await self.follower.agree_on_first_step(self._recovery_steps)
            self.worker = self.regroup(self.worker, self.follower.membership)
            positions: list[TrainingPosition | None] = []
            if await self.follower.run_until_change(self._take_position(decision, positions)):
                self.follower.log_recovery(decision.first_step)
                return positions[0]

    @property
    def _recovery_steps(self) -> tuple[int, ...]:
        """Steps from which this worker can continue."""
        if self.continues_from_checkpoints and self.checkpoints is not None:
            return self.checkpoints.list_steps()
        if self.points.steps or self._is_restarted:
            return self.points.steps
        return self.checkpoints.list_steps() if self.checkpoints is not None else (0,)

    async def _take_position(self, decision: RecoveryDecision, positions: list[TrainingPosition | None]) -> None:
        """Append the position of this worker before the first step of the new epoch to `positions`.

        A worker that has joined receives it from another one.
        """
        name = self.worker.node.name
        if self.continues_from_checkpoints and self.checkpoints is not None:
            positions.append(self._read_checkpoint(self.checkpoints, decision.first_step))
        elif name in decision.state_receivers:
            context = self.worker.algorithm_context
            max_bytes = MAX_STATE_BYTES_PER_PARAMETER * self.worker.plan.parameters + MAX_OTHER_STATE_BYTES
            state = await receive_state(context.transport, decision.state_source, context.device, max_bytes)
            position = import_position(state)
            self.points.replace_all(position)
            positions.append(position)
        else:
            position = self._go_back_to(decision.first_step)
            if name == decision.state_source:
                context = self.worker.algorithm_context
                for target in decision.state_receivers:
                    await send_state(context.transport, target, export_position(position), context.device)
            positions.append(position)

    def _go_back_to(self, step: int) -> TrainingPosition:
        """Return the position before `step`: from memory, or a checkpoint, or the initial one, if none was kept."""
        if self.points.steps or self._is_restarted:
            return self.points.go_back_to(step)
        position = self._read_checkpoint(self.checkpoints, step) if self.checkpoints is not None else None
        return position or self.worker.make_initial_position()

    def _read_checkpoint(self, checkpoints: NodeCheckpoints, step: int) -> TrainingPosition | None:
        """Return the position of this worker in the checkpoint before `step`; None for the start of the training.

        The interval to the next checkpoint begins anew.
        """
        checkpoints.schedule.restart_interval()
        if step == 0:
            return None
        position = import_position(checkpoints.read(step))
        if self.continues_other_trial and step == checkpoints.first_step:
            position = replace(position, counters=position.counters.only_losses())
        self.points.replace_all(position)
        return position
