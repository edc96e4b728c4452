"""Synchroniser `bsp` (bulk synchronous parallel): all workers wait for each other."""

from typing import Literal

from services.parameter_server.synchronisers.base import Synchroniser, WorkerSyncRules


class Bsp(Synchroniser):
    """Bulk synchronous parallel training: all workers wait for each other in every step.

    No worker starts a step before all workers have finished the previous step. L. G. Valiant, "A bridging model for
    parallel computation", CACM 33(8), 1990.
    """

    kind: Literal["bsp"] = "bsp"

    def may_start_step(self, step: int, steps_finished_by_slowest: int) -> bool:
        return step <= steps_finished_by_slowest

    def gradients_per_update(self, worker_count: int) -> int:
        return worker_count

    def describe_worker_sync(self) -> WorkerSyncRules:
        return WorkerSyncRules(is_synchronous=True, runs_in_rounds=True)
