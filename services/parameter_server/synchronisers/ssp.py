"""Synchroniser `ssp`: stale synchronous parallel training, with a bounded lead of workers."""

from typing import Literal

from pydantic import Field, NonNegativeInt

from services.parameter_server.synchronisers.base import Synchroniser, WorkerSyncRules


class Ssp(Synchroniser):
    """Stale synchronous parallel training: a bound on the steps that workers may be ahead.

    No worker starts a step more than `staleness` steps ahead of the slowest worker. Q. Ho et al., "More effective
    distributed ML via a stale synchronous parallel parameter server", NeurIPS 2013. The bound holds when a step starts;
    finished steps can be one more apart. A push is answered with the newest parameters, as with the paper's cache if it
    is always refreshed. With staleness 0 it equals bsp: gradients are averaged.
    """

    kind: Literal["ssp"] = "ssp"
    staleness: NonNegativeInt = Field(description="steps a worker may be ahead of the slowest when it starts a step")

    def may_start_step(self, step: int, steps_finished_by_slowest: int) -> bool:
        return step - steps_finished_by_slowest <= self.staleness

    def gradients_per_update(self, worker_count: int) -> int:
        return worker_count if self.staleness == 0 else 1

    def describe_worker_sync(self) -> WorkerSyncRules:
        return WorkerSyncRules(is_synchronous=self.staleness == 0, runs_in_rounds=self.staleness == 0)
