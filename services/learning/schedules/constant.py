"""Constant learning rate."""

from typing import Literal

from services.learning.schedules.base import LearningRateSchedule


class ConstantSchedule(LearningRateSchedule):
    """The declared learning rate for the whole run."""

    kind: Literal["constant"] = "constant"

    def rate_factor(self, budget_share: float) -> float:  # noqa: ARG002 - the factor does not depend on it
        return 1.0
