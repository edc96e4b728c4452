"""Serving of a shard that goes on when workers are lost or join again."""

import copy
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

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
    _positions: "OrderedDict[int, ShardPosition]" = field(default_factory=OrderedDict)  # by the next step of workers

    async def serve(self) -> ServerRuntime:
        """Serve the workers to the end of the run, and return the server of the last membership epoch."""
        await self.follower.begin()
        self._keep_position()
        self.server.on_update = self._keep_position
        while not await self.follower.run_until_change(self.server.serve_workers()):
            decision = await self.follower.agree_on_first_step(tuple(self._positions))
            position = self._positions[decision.first_step]
            for later in [step for step in self._positions if step > decision.first_step]:
                del self._positions[later]
            kept = position._replace(update_rule=copy.copy(position.update_rule))
            self.server = self.regroup(self.server, self.follower.membership, kept, decision.first_step)
            self.server.on_update = self._keep_position
            self.follower.log_recovery(decision.first_step)
        return self.server

    def _keep_position(self) -> None:
        """Keep the state after an update, and forget the oldest one."""
        machine = self.server.machine
        position = ShardPosition(machine.version, machine.samples, copy.copy(self.server.update_rule))
        self._positions[machine.version * self.steps_per_update] = position
        while len(self._positions) > KEPT_VERSIONS:
            self._positions.popitem(last=False)
