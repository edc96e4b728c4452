"""Synchroniser `elastic`: synchronous training that leaves out stragglers."""

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

from services.parameter_server.synchronisers.base import WorkerSyncRules
from services.parameter_server.synchronisers.straggler_aware import StragglerAwareSynchroniser


class ElasticSynchroniser(StragglerAwareSynchroniser):
    """Synchronous training that does not wait for stragglers (workers that are too slow).

    A step ends when all other workers have pushed. S. Li et al., "Sync-Switch", ICDCS 2021, elastic policy. We differ:
    a straggler goes on computing. Its gradient is used if it arrives in time and is dropped otherwise. The other
    workers wait for it again once it is as fast as they are. Only one server is allowed: several servers could disagree
    about which workers are stragglers.
    """

    kind: Literal["elastic"] = "elastic"

    def describe_worker_sync(self) -> WorkerSyncRules:
        return replace(super().describe_worker_sync(), needs_one_server=True)

    def gradient_quorum(self, worker_count: int, straggler_count: int) -> int:
        return max(1, worker_count - straggler_count)

    def find_always_awaited_ranks(
        self, worker_ranks: Collection[int], straggler_ranks: Collection[int]
    ) -> frozenset[int]:
        """Return the ranks of all workers that are not stragglers.

        A number of gradients alone is not enough: if a straggler's gradient arrived early, the update would be made
        before the last of the other workers has pushed, and its gradient would be dropped.
        """
        return frozenset(worker_ranks).difference(straggler_ranks)

    def accepts_staleness(self, staleness: int) -> bool:
        return staleness == 0
