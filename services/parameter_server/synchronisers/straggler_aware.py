"""Common base of the synchronisers that do not wait for stragglers."""

from pydantic import Field

from services.parameter_server.synchronisers.base import StragglerCriterion, Synchroniser, SynchroniserTraits


class StragglerAwareSynchroniser(Synchroniser):
    """Synchronous training that does not wait for stragglers while there are any."""

    stragglers: StragglerCriterion = Field(
        default=StragglerCriterion(), description="criterion by which a worker is a straggler"
    )

    def may_start(self, step: int, slowest_steps: int) -> bool:  # noqa: ARG002 - a worker waits only for its reply
        return True

    def gradients_per_update(self, workers: int) -> int:
        return workers

    def traits(self) -> SynchroniserTraits:
        return SynchroniserTraits(runs_in_rounds=True, straggler_criterion=self.stragglers)
