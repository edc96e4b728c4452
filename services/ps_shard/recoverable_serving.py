"""Serving of a shard that goes on after the loss of a worker, and that can begin with a checkpoint."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from services.checkpoints.node_checkpoints import NodeCheckpoints, follow_announcements
from services.parameter_server.server_state import ServerState
from services.ps_shard.runtime import ServerRuntime
from services.runtime.control import FinalNodeReport
from services.runtime.membership import Membership
from services.runtime.membership_follower import MembershipFollower

LOSS_POLL_S = 0.05  # virtual seconds
KEPT_VERSIONS = 2  # of synchronous servers, which are at most one update apart


@dataclass
class RecoverableServing:
    """Serving of one shard over all membership epochs.

    Pushes of a step that was broken off are dropped; workers push again from the step on which all nodes agree.
    """

    server: ServerRuntime  # of the current membership epoch
    regroup: Callable[[ServerRuntime, Membership, ServerState, int], ServerRuntime]
    follower: MembershipFollower
    steps_per_update: int
    checkpoints: NodeCheckpoints | None  # None: no checkpoint is written
    continues_from_checkpoints: bool  # whether nodes go back to a checkpoint after a loss, not to a step in memory
    leave: Callable[[FinalNodeReport], Awaitable[None]]  # leaves the run
    _states: "OrderedDict[int, ServerState]" = field(default_factory=OrderedDict)  # by the next step of workers
    _initial_state: ServerState = field(init=False)
    _unreachable: set[int] = field(default_factory=set)  # ranks of workers of the current epoch

    def __post_init__(self) -> None:
        self._initial_state = self.server.copy_state()

    async def serve(self) -> ServerRuntime:
        """Serve the workers to the end of the run, leave it, and return the server of the last membership epoch.

        Raises:
            CheckpointError: a checkpoint can't be written or read.
        """
        await self.follower.begin()
        self._keep_state()
        if self.checkpoints is not None or self.follower.membership.epoch:  # maybe a loss before this server knew it
            steps = self._recovery_steps if self.checkpoints is None else self.checkpoints.list_steps()
            decision = await self.follower.agree_on_first_step(steps)
            self._continue_from(decision.first_step)
        self._add_callbacks()
        while not await self.follower.run_until_change(self._serve_and_leave(), awaits_losses=True):
            decision = await self.follower.agree_on_first_step(self._recovery_steps)
            self._continue_from(decision.first_step)
            self.follower.log_recovery(decision.first_step)
        return self.server

    async def _serve_and_leave(self) -> None:
        """Serve the workers of the current membership epoch to the end of the run, and leave it.

        Workers write a checkpoint if one is due at the first step of the epoch, so the server does, too.
        """
        async with follow_announcements(self.checkpoints, self.follower.membership):
            await self._write_due_checkpoint()
            await self.server.serve_workers()
        await self.leave(self.server.final_shard_state)

    @property
    def _recovery_steps(self) -> tuple[int, ...]:
        """Steps from which this server can continue."""
        if self.continues_from_checkpoints and self.checkpoints is not None:
            return self.checkpoints.list_steps()
        return tuple(self._states)

    def _keep_state(self) -> None:
        """Keep the current state in memory, and forget the oldest one."""
        self._states[self.server.machine.version * self.steps_per_update] = self.server.copy_state()
        while len(self._states) > KEPT_VERSIONS:
            self._states.popitem(last=False)

    async def _keep_updated_state(self) -> None:
        """Keep the state after an update in memory, and write a checkpoint if one is due."""
        self._keep_state()
        await self._write_due_checkpoint()

    async def _write_due_checkpoint(self) -> None:
        """Write a checkpoint of the current state if one is due."""
        step = self.server.machine.version * self.steps_per_update
        if self.checkpoints is not None and self.checkpoints.is_due(step):
            self.server.update_log.flush()  # a trial that continues from the checkpoint needs the log of all updates
            state = self.server.copy_state()
            await self.checkpoints.write(step, self.follower.membership.epoch, state.samples, state)

    def _continue_from(self, step: int) -> None:
        """Continue from the state before `step`, with the workers of the current membership."""
        state = self._states[step] if step in self._states else self._read_checkpoint(step)
        for later in [kept for kept in self._states if kept > step]:
            del self._states[later]
        self.server = self.regroup(self.server, self.follower.membership, state, step)
        self._add_callbacks()
        self._keep_state()

    def _add_callbacks(self) -> None:
        """Let the server of a new membership epoch call this object."""
        self._unreachable = set()
        self.server.on_update = self._keep_updated_state
        self.server.await_loss = self._await_end_without

    async def _await_end_without(self, worker_name: str) -> bool:
        """Wait until all workers that can be reached have left: then training is over, and no membership epoch follows.

        Return whether this has happened before the loss of the worker should have been announced. A membership epoch
        without the worker cancels the wait.
        """
        clock = self.follower.clock
        self._unreachable.add(self.server.worker_names.index(worker_name))
        deadline_s = clock.now() + self.follower.announcement_timeout_s
        while not self._have_other_workers_left():
            if clock.now() > deadline_s:
                return False
            await clock.sleep_until(clock.now() + LOSS_POLL_S)
        return True

    def _have_other_workers_left(self) -> bool:
        """Return whether at least one worker has left, and no worker remains that can be reached."""
        remaining = self.server.next_steps.keys()
        return len(remaining) < len(self.server.worker_names) and remaining <= self._unreachable

    def _read_checkpoint(self, step: int) -> ServerState:
        """Return the state of the server in the checkpoint before `step`, or the initial one."""
        if step == 0 or self.checkpoints is None:
            return self._initial_state
        state: ServerState = self.checkpoints.read(step)
        return state
