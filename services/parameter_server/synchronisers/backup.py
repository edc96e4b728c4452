"""Synchroniser `backup`: synchronous training with backup workers."""

from typing import Literal

from pydantic import Field, NonNegativeInt

from services.parameter_server.synchronisers.base import Synchroniser, SynchroniserTraits


class BackupWorkers(Synchroniser):
    """Backup workers: a step ends with the first n - b of its n gradients, and later gradients are dropped.

    J. Chen et al., "Revisiting distributed synchronous SGD", 2016. A late worker gets the new parameters at once. A
    dropped gradient was computed but does not count as progress. Every server drops gradients independently, as
    TensorFlow's accumulators do.
    """

    kind: Literal["backup"] = "backup"
    backups: NonNegativeInt = Field(description="gradients of a step that are not waited for (b)")

    def may_start(self, step: int, slowest_steps: int) -> bool:  # noqa: ARG002 - a worker waits only for its reply
        return True

    def gradients_per_update(self, workers: int) -> int:
        return max(1, workers - self.backups)

    def accepts_staleness(self, staleness: int) -> bool:
        return staleness == 0

    def conflict_reason(self, workers: int) -> str | None:
        if workers == 1 or self.backups < workers:
            return None
        return (
            f"with {self.backups} backups a step of {workers} workers has no gradient to wait for; "
            f"use at most {workers - 1}"
        )

    def traits(self) -> SynchroniserTraits:
        return SynchroniserTraits(is_synchronous=self.backups == 0, runs_in_rounds=True)
