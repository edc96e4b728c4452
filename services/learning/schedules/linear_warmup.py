"""Warm-up, then a constant learning rate."""

from collections.abc import Iterator
from typing import Literal

from services.learning.schedules.base import WarmupSchedule
from services.schema.conflicts import KeyConflict


class LinearWarmup(WarmupSchedule):
    """Learning rate that grows linearly during the warm-up, and then stays as declared."""

    kind: Literal["linear_warmup"] = "linear_warmup"

    def find_field_conflicts(self) -> Iterator[KeyConflict]:
        yield from super().find_field_conflicts()
        if self.warmup is None and self.warmup_steps is None:
            why = "linear_warmup needs warmup (a share of the budget, such as 0.05) or warmup_steps"
            yield KeyConflict(("warmup",), why)

    def factor_after_warmup(self, budget_share: float) -> float:  # noqa: ARG002 - the factor does not depend on it
        return 1.0
