"""Base class of synchronisers with which workers do not wait for stragglers.

Stragglers are workers that are too slow.
"""

from pydantic import Field

from services.parameter_server.synchronisers.base import StragglerCriterion, Synchroniser, WorkerSyncRules


class StragglerAwareSynchroniser(Synchroniser):
    """Synchronous training in which workers do not wait for stragglers.

    Stragglers are workers that are too slow.
    """

    stragglers: StragglerCriterion = Field(StragglerCriterion(), description="criterion for being a straggler")

    def may_start_step(self, step: int, steps_finished_by_slowest: int) -> bool:  # noqa: ARG002 - a worker waits only for its reply
        return True

    def gradients_per_update(self, worker_count: int) -> int:
        return worker_count

    def describe_worker_sync(self) -> WorkerSyncRules:
        return WorkerSyncRules(runs_in_rounds=True, straggler_criterion=self.stragglers)
