"""Serving of a shard that goes on after the loss of a worker, and that can begin with a checkpoint."""

import copy
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from services.checkpoints.node_checkpoints import NodeCheckpoints
from services.parameter_server.update_rules import UpdateRule
from services.ps_shard.runtime import ServerRuntime
from services.runtime.membership import Membership
from services.runtime.membership_follower import MembershipFollower

KEPT_VERSIONS = 2  # of synchronous servers, which are at most one update apart


class ShardPosition(NamedTuple):
    """State of a server between two updates, from which it can continue."""

    version: int
    samples: int  # used for updates
    update_rule: UpdateRule  # with the parameters of this version; updates replace its arrays by new ones


@dataclass
class RecoverableServing:
    """Serving of one shard over all membership epochs.

    Pushes of a step that was broken off are dropped; workers push again from the step on which all nodes agree.
    """

    server: ServerRuntime  # of the current membership epoch
    regroup: Callable[[ServerRuntime, Membership, ShardPosition, int], ServerRuntime]
    follower: MembershipFollower
    steps_per_update: int
    checkpoints: NodeCheckpoints | None  # None: no checkpoint is written
    continues_from_checkpoints: bool  # whether nodes go back to a checkpoint after a loss, not to a step in memory
    _positions: "OrderedDict[int, ShardPosition]" = field(default_factory=OrderedDict)  # by the next step of workers
    _initial_state: ShardPosition = field(init=False)

    def __post_init__(self) -> None:
        self._initial_state = self._current_position

    async def serve(self) -> ServerRuntime:
        """Serve the workers to the end of the run, and return the server of the last membership epoch.

        Raises:
            CheckpointError: a checkpoint can't be written or read.
        """
        await self.follower.begin()
        self._keep_position()
        if self.checkpoints is not None:
            decision = await self.follower.agree_on_first_step(self.checkpoints.list_steps())
            self._continue_from(decision.first_step)
        self.server.on_update = self._keep_updated_state
        while not await self.follower.run_until_change(self.server.serve_workers()):
            decision = await self.follower.agree_on_first_step(self._recovery_steps)
            self._continue_from(decision.first_step)
            self.follower.log_recovery(decision.first_step)
        return self.server

    @property
    def _recovery_steps(self) -> tuple[int, ...]:
        """Steps from which this server can continue."""
        if self.continues_from_checkpoints and self.checkpoints is not None:
            return self.checkpoints.list_steps()
        return tuple(self._positions)

    @property
    def _current_position(self) -> ShardPosition:
        machine = self.server.machine
        return ShardPosition(machine.version, machine.samples, copy.copy(self.server.update_rule))

    def _keep_position(self) -> None:
        """Keep the current state in memory, and forget the oldest one."""
        self._positions[self.server.machine.version * self.steps_per_update] = self._current_position
        while len(self._positions) > KEPT_VERSIONS:
            self._positions.popitem(last=False)

    async def _keep_updated_state(self) -> None:
        """Keep the state after an update in memory, and write a checkpoint if one is due."""
        self._keep_position()
        step = self.server.machine.version * self.steps_per_update
        if self.checkpoints is not None and self.checkpoints.is_due(step):
            version, samples, update_rule = self._current_position
            state = version, samples, update_rule.export_state()
            await self.checkpoints.write(step, self.follower.membership.epoch, samples, state)

    def _continue_from(self, step: int) -> None:
        """Continue from the state before `step`, with the workers of the current membership."""
        position = self._read_checkpoint(step) if step not in self._positions else self._positions[step]
        for later in [kept for kept in self._positions if kept > step]:
            del self._positions[later]
        unchanged = position._replace(update_rule=copy.copy(position.update_rule))
        self.server = self.regroup(self.server, self.follower.membership, unchanged, step)
        self.server.on_update = self._keep_updated_state
        self._keep_position()

    def _read_checkpoint(self, step: int) -> ShardPosition:
        """Return the state of the shard in the checkpoint before `step`, or the initial one."""
        if step == 0 or self.checkpoints is None:
            return self._initial_state
        version, samples, rule_state = self.checkpoints.read(step)
        update_rule = copy.copy(self._initial_state.update_rule)
        update_rule.import_state(rule_state)
        return ShardPosition(version, samples, update_rule)
