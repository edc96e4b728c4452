"""Shares of a batch in proportion to measured speeds.

C. Chen, Q. Weng, W. Wang, B. Li, B. Li, "Semi-dynamic load balancing: efficient distributed learning in
non-dedicated environments" (LB-BSP), ACM SoCC 2020, arXiv:1806.02508.
"""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, PositiveInt

from services.learning.batch_balance.base import BatchShares, DeclaredSpeeds, LimitedBalance, MeasuredSpeeds
from services.learning.batch_balance.division import divide_batch, ideal_shares
from services.schema.conflicts import KeyConflict


class DynamicBalance(LimitedBalance):
    """Shares in proportion to measured speeds, as in LB-BSP.

    Training begins with equal shares. Each worker measures the samples per second of its compute phase and smooths
    them. Every `period` steps, when all workers have finished a step, they exchange the smoothed speeds, and each
    computes the same new shares. Shares stay as they are while each of them is near its ideal value: closer than the
    dead band, or than one sample. So noise and rounding do not make them oscillate. We differ from the paper: an
    exponential mean replaces its recurrent network, and the compute time is assumed to be proportional to the samples.
    """

    kind: Literal["dynamic"] = "dynamic"
    period: PositiveInt = Field(
        10, description="steps after which workers exchange measured speeds and may change the shares"
    )
    smoothing: float = Field(
        0.8, ge=0, lt=1, description="weight of the earlier steps in the smoothed speed of a worker; 0: last step only"
    )
    dead_band: float = Field(
        0.05, ge=0, lt=1, description="relative distance of a share from its ideal value that changes nothing"
    )

    @property
    def resize_period(self) -> int:
        return self.period

    def find_scenario_conflicts(
        self, batch: int, declared_speeds: DeclaredSpeeds, step_count: int
    ) -> Iterator[KeyConflict]:
        yield from super().find_scenario_conflicts(batch, declared_speeds, step_count)
        if self.period >= step_count:
            message = (
                f"period ({self.period}) is not shorter than the run ({step_count} steps), so that shares would never "
                f"change; use at most {step_count - 1}"
                if step_count > 1
                else "shares never change in a run of one step; use balance uniform or proportional"
            )
            yield KeyConflict(("period",), message)

    def initial_shares(self, batch: int, declared_speeds: DeclaredSpeeds) -> BatchShares:
        return divide_batch(batch, (1.0,) * len(declared_speeds), self.max_share)

    def smooth_speed(self, smoothed_speed: float, sample_count: int, compute_s: float) -> float:
        """Return the exponential mean of the speed; a step without samples or without duration changes nothing."""
        if not sample_count or compute_s <= 0:
            return smoothed_speed
        speed = sample_count / compute_s
        return self.smoothing * smoothed_speed + (1 - self.smoothing) * speed if smoothed_speed else speed

    def resize_shares(self, shares: BatchShares, measured_speeds: MeasuredSpeeds) -> BatchShares:
        """Return shares in proportion to the speeds, or the same shares if all of them are near their ideal values.

        They are the same, too, while a worker has not measured its speed.
        """
        if not all(measured_speeds):
            return shares
        batch = sum(shares)
        ideal = ideal_shares(batch, measured_speeds, self.max_share)
        if all(
            abs(target - share) < max(1.0, self.dead_band * share) for target, share in zip(ideal, shares, strict=True)
        ):
            return shares
        return divide_batch(batch, measured_speeds, self.max_share)
