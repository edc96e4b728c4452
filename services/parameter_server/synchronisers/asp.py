"""Synchroniser `asp` (asynchronous parallel): no worker ever waits."""

from typing import Literal

from services.parameter_server.synchronisers.base import Synchroniser


class Asp(Synchroniser):
    """Asynchronous parallel training: no worker ever waits.

    Staleness has no bound. B. Recht et al., "Hogwild!", NeurIPS 2011; J. Dean et al., "Large scale distributed deep
    networks", NeurIPS 2012.
    """

    kind: Literal["asp"] = "asp"

    def may_start_step(self, step: int, steps_finished_by_slowest: int) -> bool:  # noqa: ARG002 - no worker waits
        return True

    def gradients_per_update(self, worker_count: int) -> int:  # noqa: ARG002 - every gradient is an update of its own
        return 1
