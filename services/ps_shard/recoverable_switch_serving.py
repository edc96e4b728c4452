"""Serving of a shard that begins with a strategy switch to asynchronous training, and that goes on after a loss."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from services.ps_shard.evicting_serving import EvictingServing
from services.ps_shard.runtime import ServerRuntime
from services.ps_shard.strategy_switch import StrategySwitchingServer
from services.runtime.control import FinalNodeReport
from services.runtime.membership import Membership
from services.runtime.membership_follower import MembershipFollower


@dataclass
class RecoverableSwitchServing:
    """Serving of one shard over all membership epochs. The server owns no part of the model before the switch.

    A loss before the commit of the switch breaks off the switch, and the server forgets what it has loaded. The switch
    begins anew with the remaining workers. After the commit, lost workers are evicted.
    """

    switching_server: StrategySwitchingServer  # of the current membership epoch, up to the commit
    regroup: Callable[[StrategySwitchingServer, Membership], StrategySwitchingServer]
    follower: MembershipFollower
    leave: Callable[[FinalNodeReport], Awaitable[None]]  # leaves the run

    async def serve(self) -> ServerRuntime:
        """Serve the workers to the end of the run, leave it, and return the server of the last membership epoch."""
        await self.follower.begin()
        if self.follower.membership.epoch:
            self._regroup()
        outcomes: list[bool] = []
        while not await self.follower.run_until_change(self._serve_first_phase(outcomes)):
            self._regroup()
        server = self.switching_server.server
        if any(outcomes):
            await EvictingServing(server, self.follower).serve()
        await self.leave(server.final_shard_state)
        return server

    async def _serve_first_phase(self, outcomes: list[bool]) -> None:
        """Append whether a switch is committed to `outcomes`."""
        outcomes.append(await self.switching_server.serve_first_phase())

    def _regroup(self) -> None:
        """Continue with the workers of the current membership."""
        self.switching_server = self.regroup(self.switching_server, self.follower.membership)
