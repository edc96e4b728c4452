"""Synchroniser `dssp`: dynamic stale synchronous parallel training."""

from math import ceil, isinf
from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from services.parameter_server.synchronisers.base import Synchroniser
from services.parameter_server.synchronisers.ssp import Ssp
from services.schema.conflicts import KeyConflict, raise_conflicts


class Dssp(Synchroniser):
    """Dynamic stale synchronous parallel training, with a varying bound on workers' lead.

    To shorten waits, the server varies (`low` to `high`) how many steps a worker may lead the slowest worker. X. Zhao
    et al., "Dynamic stale synchronous parallel distributed training for deep learning", ICDCS 2019. The server predicts
    when the worker and the slowest worker finish their next steps, from the durations of their last ones. The worker
    gets as many extra steps as let it wait least for the slowest. We differ: the prediction is made for every worker
    that would have to wait, not only for the fastest; it is repeated at every push; durations exclude waiting. Of
    several servers, only the first one predicts, and the others apply the bound `high`.
    """

    kind: Literal["dssp"] = "dssp"
    low: NonNegativeInt = Field(description="steps that a worker may always be ahead of the slowest worker")
    high: PositiveInt = Field(description="steps that a worker may at most be ahead of the slowest worker")

    @model_validator(mode="after")
    def _check_steps_ahead_limits(self) -> Self:
        if self.high <= self.low:
            reason = f"high ({self.high}) must be larger than low ({self.low}); if both are equal, use kind ssp"
            raise_conflicts([KeyConflict(("high",), reason)])
        return self

    def may_start_step(self, step: int, steps_finished_by_slowest: int) -> bool:
        return step - steps_finished_by_slowest <= self.low

    def gradients_per_update(self, worker_count: int) -> int:  # noqa: ARG002 - every gradient is an update of its own
        return 1

    def for_later_shards(self) -> Synchroniser:
        """Return `ssp` with the bound `high`: predictions of several servers would differ."""
        return Ssp(staleness=self.high)

    def count_allowed_extra_steps(
        self, steps_ahead_of_slowest: int, own_step_s: float, slowest_remaining_s: float, slowest_worker_step_s: float
    ) -> int:
        most = self.high - steps_ahead_of_slowest + 1
        if most <= 0 or own_step_s <= 0 or slowest_worker_step_s <= 0:
            return 0
        return min(
            range(most + 1),
            key=lambda steps: _compute_wait_s(steps * own_step_s, slowest_remaining_s, slowest_worker_step_s),
        )


def _compute_wait_s(worker_ready_after_s: float, slowest_remaining_s: float, slowest_worker_step_s: float) -> float:
    """Return the seconds that a worker waits until the slowest worker ends its next step.

    The wait begins when the worker is ready.
    """
    periods = (worker_ready_after_s - slowest_remaining_s) / slowest_worker_step_s
    if isinf(periods):  # the period is so short that there is nothing to wait for
        return 0.0
    return max(0.0, slowest_remaining_s + max(0, ceil(periods)) * slowest_worker_step_s - worker_ready_after_s)
