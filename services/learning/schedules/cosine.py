"""Cosine decay of the learning rate."""

from math import cos, pi
from typing import Literal

from pydantic import Field

from services.learning.schedules.base import WarmupSchedule


class CosineSchedule(WarmupSchedule):
    """Learning rate that falls along half a period of a cosine, from the end of the warm-up to the end of the budget.

    The factor is f + (1-f)·(1 + cos(π·p))/2 at the share p of the decay, with the final factor f. I. Loshchilov,
    F. Hutter, "SGDR: stochastic gradient descent with warm restarts", ICLR 2017, without restarts.
    """

    kind: Literal["cosine"] = "cosine"
    final: float = Field(default=0.0, ge=0, le=1, description="factor on the learning rate at the end of the budget")

    def factor_after_warmup(self, budget_share: float) -> float:
        return self.final + (1 - self.final) * (1 + cos(pi * self.share_of_decay(budget_share))) / 2
