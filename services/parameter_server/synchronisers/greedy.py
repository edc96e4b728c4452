"""Synchroniser `greedy`: training is asynchronous only while there is a straggler.

Without stragglers (workers that are too slow), training is synchronous.
"""

from dataclasses import replace
from typing import Literal

from services.parameter_server.synchronisers.base import WorkerSyncRules
from services.parameter_server.synchronisers.straggler_aware import StragglerAwareSynchroniser


class GreedySynchroniser(StragglerAwareSynchroniser):
    """Synchronous training that becomes asynchronous while there is a straggler.

    While training is asynchronous, there is one update per gradient. S. Li et al., "Sync-Switch", ICDCS 2021, greedy
    policy. The first synchronous update after an asynchronous period averages gradients of different staleness. Of
    several servers, the first one decides for all of them, and informs the workers in its replies. If each server
    decided on its own, one server could keep a worker waiting for the next push of another worker, which a second
    server keeps waiting for the first. Training becomes asynchronous only after an update from all workers, not in the
    middle of a step.
    """

    kind: Literal["greedy"] = "greedy"

    def describe_worker_sync(self) -> WorkerSyncRules:
        return replace(super().describe_worker_sync(), is_asynchronous_with_stragglers=True)
