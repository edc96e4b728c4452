"""Polynomial decay of the learning rate."""

from typing import Literal

from pydantic import Field

from services.learning.schedules.base import WarmupSchedule


class PolynomialSchedule(WarmupSchedule):
    """Learning rate that falls as a power of the budget that remains after the warm-up.

    The factor is f + (1-f)·(1-p)^power at the share p of the decay, with the final factor f. The papers of LARS
    (power 2) and of LAMB (power 1) use it.
    """

    kind: Literal["polynomial"] = "polynomial"
    power: float = Field(default=1.0, gt=0, description="exponent of the decay; 1: linear")
    final: float = Field(default=0.0, ge=0, le=1, description="factor on the learning rate at the end of the budget")

    def factor_after_warmup(self, budget_share: float) -> float:
        remaining: float = (1 - self.share_of_decay(budget_share)) ** self.power
        return self.final + (1 - self.final) * remaining
