"""Synchroniser `gba`: global batch aggregation."""

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from services.parameter_server.synchronisers.base import Synchroniser, WorkerSyncRules


class Gba(Synchroniser):
    """Global batch aggregation: one update per global batch, and no worker waits.

    An update is made when gradients for a global batch have arrived. W. Su et al., "GBA: a tuning-free approach to
    switch between synchronous and asynchronous training for recommendation models", NeurIPS 2022. A worker gets its
    reply at once; its own gradient may not be in those parameters yet. We differ in two points. A gradient that is too
    stale is dropped and does not count towards the global batch; in the paper it counts with weight 0. So every update
    covers the same number of samples, except the last ones after workers have left. Staleness is counted in updates,
    not in the paper's tokens.
    """

    kind: Literal["gba"] = "gba"
    gather: PositiveInt | None = Field(None, description="gradients per update (M); default: the number of workers")
    oldest: NonNegativeInt | None = Field(
        None, description="maximum staleness in updates; a staler gradient is dropped; default: no maximum"
    )

    def may_start_step(self, step: int, steps_finished_by_slowest: int) -> bool:  # noqa: ARG002 - no worker waits
        return True

    def gradients_per_update(self, worker_count: int) -> int:
        return self.gather or worker_count

    def accepts_staleness(self, staleness: int) -> bool:
        return self.oldest is None or staleness <= self.oldest

    def describe_worker_sync(self) -> WorkerSyncRules:
        return WorkerSyncRules(replies_after_update=False)
