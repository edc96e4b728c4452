"""Shares of a batch in proportion to declared speeds, or to given weights."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, PositiveFloat

from services.learning.batch_balance.base import BatchShares, DeclaredSpeeds, LimitedBalance
from services.learning.batch_balance.division import divide_batch
from services.schema.conflicts import KeyConflict


class ProportionalBalance(LimitedBalance):
    """Shares in proportion to the declared speeds of the workers, or to given weights.

    The shares stay the same during the whole training. Every worker has at least one sample of a whole batch.
    """

    kind: Literal["proportional"] = "proportional"
    weights: tuple[PositiveFloat, ...] | None = Field(
        None, min_length=1, description="relative share of each worker, by rank; default: the declared speeds"
    )

    def find_scenario_conflicts(
        self, batch: int, declared_speeds: DeclaredSpeeds, step_count: int
    ) -> Iterator[KeyConflict]:
        yield from super().find_scenario_conflicts(batch, declared_speeds, step_count)
        if self.weights is None and None in declared_speeds:
            message = (
                f"proportional needs the speed of every worker, but worker-{[*declared_speeds].index(None)} declares "
                "none; declare a throughput or utilisation, or add weights"
            )
            yield KeyConflict((), message)
        if self.weights is not None and len(self.weights) != len(declared_speeds):
            message = f"{len(self.weights)} weights for {len(declared_speeds)} workers; write one weight per worker"
            yield KeyConflict(("weights",), message)

    def initial_shares(self, batch: int, declared_speeds: DeclaredSpeeds) -> BatchShares:
        weights = self.weights or tuple(speed for speed in declared_speeds if speed is not None)
        return divide_batch(batch, weights, self.max_share)
