"""Synchroniser `bsp`: bulk synchronous parallel."""

from typing import Literal

from services.parameter_server.synchronisers.base import Synchroniser, SynchroniserTraits


class Bsp(Synchroniser):
    """Bulk synchronous parallel: no worker starts a step before all workers have finished the previous one.

    L. G. Valiant, "A bridging model for parallel computation", CACM 33(8), 1990.
    """

    kind: Literal["bsp"] = "bsp"

    def may_start(self, step: int, slowest_steps: int) -> bool:
        return step <= slowest_steps

    def gradients_per_update(self, workers: int) -> int:
        return workers

    def traits(self) -> SynchroniserTraits:
        return SynchroniserTraits(is_synchronous=True, runs_in_rounds=True)
