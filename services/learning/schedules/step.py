"""Learning rate that falls in steps."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt

from services.learning.schedules.base import TrainingBudget, WarmupSchedule
from services.schema.conflicts import KeyConflict

BudgetShare = Annotated[float, Field(gt=0, lt=1)]


class StepSchedule(WarmupSchedule):
    """Learning rate that is multiplied by `factor` at each milestone.

    Milestones are shares of the sample budget, or training steps. K. He et al., "Deep residual learning for image
    recognition", CVPR 2016, divide the rate by 10 in this way.
    """

    kind: Literal["step"] = "step"
    milestones: tuple[BudgetShare, ...] = Field(
        (), description="shares of the sample budget at which the learning rate falls, in ascending order"
    )
    milestone_steps: tuple[PositiveInt, ...] = Field(
        (), description="steps before which the learning rate falls, in place of milestones"
    )
    factor: float = Field(default=0.1, gt=0, lt=1, description="factor on the learning rate at each milestone")

    def find_field_conflicts(self) -> Iterator[KeyConflict]:
        yield from super().find_field_conflicts()
        if not (self.milestones or self.milestone_steps):
            why = "step needs milestones (shares of the budget, such as [0.5, 0.75]) or milestone_steps"
            yield KeyConflict(("milestones",), why)
        if self.milestones and self.milestone_steps:
            why = "milestones (shares of the budget) and milestone_steps exclude each other; remove one"
            yield KeyConflict(("milestone_steps",), why)
        for key in ("milestones", "milestone_steps"):
            if any(after <= before for before, after in pairwise(getattr(self, key))):
                yield KeyConflict((key,), f"{key} must be in ascending order, without repetition")

    def factor_after_warmup(self, budget_share: float) -> float:
        passed: int = sum(budget_share >= milestone for milestone in self.milestones)
        return self.factor**passed

    def convert_steps(self, budget: TrainingBudget) -> Self:
        converted = super().convert_steps(budget)
        if not self.milestone_steps:
            return converted
        shares = tuple(budget.share_before(step) for step in self.milestone_steps)
        return converted.with_shares(milestones=shares, milestone_steps=())

    def find_budget_conflicts(self, budget: TrainingBudget) -> Iterator[KeyConflict]:
        yield from super().find_budget_conflicts(budget)
        key = "milestone_steps" if self.milestone_steps else "milestones"
        if self.milestone_steps and self.milestone_steps[-1] >= budget.steps:
            why = f"milestone {self.milestone_steps[-1]} is after the end of training"
            yield KeyConflict((key,), f"{why}; the budget has steps 0 to {budget.steps - 1}")
        converted = self.convert_steps(budget)
        if converted.milestones[0] < converted.warmup_share:
            first = getattr(self, key)[0]
            why = f"milestone {first:g} lies within the warm-up"
            yield KeyConflict((key,), f"{why}; use a later milestone or a shorter warm-up")
