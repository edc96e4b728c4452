"""Serving of a shard under asynchronous training: a lost worker is evicted, and the others go on without a break."""

import asyncio
from dataclasses import dataclass

from services.ps_shard.runtime import ServerRuntime
from services.runtime.membership_follower import MembershipFollower

EVICTION_POLL_S = 0.05  # virtual seconds


@dataclass(frozen=True)
class EvictingServing:
    """Serving of one shard over all membership epochs, with the same server."""

    server: ServerRuntime
    follower: MembershipFollower  # which has begun

    async def serve(self) -> None:
        """Serve the workers to the end of the run."""
        self.server.await_loss = self._await_eviction
        async with asyncio.TaskGroup() as group:
            eviction = group.create_task(self._evict_lost_workers())
            await self.server.serve_workers()
            eviction.cancel()

    async def _evict_lost_workers(self) -> None:
        remaining = self.server.worker_names
        while True:
            for name in remaining:
                if name not in self.follower.membership.workers:
                    await self.server.evict_worker(name)
            remaining = tuple(name for name in remaining if name in self.follower.membership.workers)
            await self.follower.await_change()

    async def _await_eviction(self, worker_name: str) -> bool:
        """Wait until a worker that can't be reached is evicted, and return whether this has happened in time."""
        deadline_s = self.follower.clock.now() + self.follower.announcement_timeout_s
        while worker_name in self.follower.membership.workers:
            if self.follower.clock.now() > deadline_s:
                return False
            await self.follower.clock.sleep_until(self.follower.clock.now() + EVICTION_POLL_S)
        return True
