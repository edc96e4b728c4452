"""Synchroniser `backup`: synchronous training with backup workers."""

from typing import Literal

from pydantic import Field, NonNegativeInt

from services.parameter_server.synchronisers.base import Synchroniser, WorkerSyncRules


class BackupWorkers(Synchroniser):
    """Synchronous training with backup workers: a step ends without the last gradients.

    A step of n workers ends with the first n - b gradients (b: `backups`). Later gradients are dropped. J. Chen et al.,
    "Revisiting distributed synchronous SGD", 2016. A late worker gets the new parameters at once. A dropped gradient
    was computed but does not count as progress. Every server drops gradients independently, as TensorFlow's
    accumulators do.
    """

    kind: Literal["backup"] = "backup"
    backups: NonNegativeInt = Field(description="gradients of a step that are not waited for (b)")

    def may_start_step(self, step: int, steps_finished_by_slowest: int) -> bool:  # noqa: ARG002 - a worker waits only for its reply
        return True

    def gradients_per_update(self, worker_count: int) -> int:
        return max(1, worker_count - self.backups)

    def accepts_staleness(self, staleness: int) -> bool:
        return staleness == 0

    def explain_bad_worker_count(self, worker_count: int) -> str | None:
        if worker_count == 1 or self.backups < worker_count:
            return None
        return (
            f"backups ({self.backups}) must be smaller than the number of workers ({worker_count}), because a step "
            f"ignores the gradients of the slowest {self.backups} workers; use at most {worker_count - 1}"
        )

    def describe_worker_sync(self) -> WorkerSyncRules:
        return WorkerSyncRules(is_synchronous=self.backups == 0, runs_in_rounds=True)
