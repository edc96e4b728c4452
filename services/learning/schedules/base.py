"""Base classes of learning-rate schedules, with and without a warm-up."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from pydantic import Field, PositiveInt, model_validator

from services.learning.data_order import DataOrder
from services.schema.component import ScenarioComponent
from services.schema.conflicts import KeyConflict, raise_conflicts


@dataclass(frozen=True)
class TrainingBudget:
    """Training budget of a run, which converts steps to shares of the budget's samples."""

    data_order: DataOrder
    epochs: int

    @property
    def samples(self) -> int:
        """Number of samples in the whole budget."""
        return self.epochs * self.data_order.samples

    @property
    def steps(self) -> int:
        """Number of synchronous training steps in the whole budget."""
        return self.epochs * self.data_order.steps_per_epoch

    def share_before(self, step: int) -> float:
        """Return the share of the budget's samples in all global batches before `step`."""
        return self.data_order.count_samples_before(step) / self.samples


class LearningRateSchedule(ScenarioComponent):
    """Base class of learning-rate schedules: the factor on the learning rate during training.

    The factor is a function of the share of the sample budget that was used before an update. So the same schedule
    holds for any number of workers, for asynchronous servers, and before and after a strategy switch.
    """

    @abstractmethod
    def rate_factor(self, budget_share: float) -> float:
        """Return the factor on the learning rate of an update.

        Before the update, `budget_share` of the sample budget has been used. The share may exceed 1, because
        asynchronous workers finish their step at the end of the budget. Keys in steps must have been converted.
        """

    def convert_steps(self, budget: TrainingBudget) -> Self:  # noqa: ARG002 - not every schedule has keys in steps
        """Return this schedule with shares of the budget in place of keys in steps."""
        return self

    def find_budget_conflicts(self, budget: TrainingBudget) -> Iterator[KeyConflict]:  # noqa: ARG002 - see above
        """Yield the conflicts between this schedule and the training budget.

        Key paths are relative to the schedule.
        """
        yield from ()


class WarmupSchedule(LearningRateSchedule):
    """Base class of schedules that can start with a warm-up, in which the learning rate grows linearly.

    P. Goyal et al., "Accurate, large minibatch SGD: training ImageNet in 1 hour", arXiv:1706.02677, 2017.
    """

    warmup: float | None = Field(None, ge=0, lt=1, description="share of the sample budget that is warm-up; default: 0")
    warmup_steps: PositiveInt | None = Field(None, description="steps of the warm-up, in place of warmup")
    warmup_start: float = Field(
        default=0.0, ge=0, le=1, description="factor on the learning rate at the start of the warm-up"
    )

    @model_validator(mode="after")
    def _reject_field_conflicts(self) -> Self:
        raise_conflicts(self.find_field_conflicts())
        return self

    def find_field_conflicts(self) -> Iterator[KeyConflict]:
        """Yield the conflicts between the fields of this schedule."""
        if self.warmup is not None and self.warmup_steps is not None:
            why = "warmup (a share of the budget) and warmup_steps exclude each other; remove one"
            yield KeyConflict(("warmup_steps",), why)
        if self.warmup_start and not (self.warmup or self.warmup_steps):
            why = "warmup_start has no effect without a warm-up; add warmup (a share of the budget) or warmup_steps"
            yield KeyConflict(("warmup_start",), why)

    @property
    def warmup_share(self) -> float:
        """Share of the sample budget that is warm-up."""
        return self.warmup or 0.0

    def rate_factor(self, budget_share: float) -> float:
        if budget_share < self.warmup_share:
            return self.warmup_start + (1 - self.warmup_start) * budget_share / self.warmup_share
        return self.factor_after_warmup(budget_share)

    @abstractmethod
    def factor_after_warmup(self, budget_share: float) -> float:
        """Return the factor on the learning rate after the warm-up."""

    def share_of_decay(self, budget_share: float) -> float:
        """Return the share of the budget after the warm-up that has been used, at most 1."""
        return min(1.0, (budget_share - self.warmup_share) / (1 - self.warmup_share))

    def convert_steps(self, budget: TrainingBudget) -> Self:
        if self.warmup_steps is None:
            return self
        return self.with_shares(warmup=budget.share_before(self.warmup_steps), warmup_steps=None)

    def with_shares(self, **fields: Any) -> Self:
        """Return this schedule with other values of some fields."""
        return self.model_copy(update=fields)

    def find_budget_conflicts(self, budget: TrainingBudget) -> Iterator[KeyConflict]:
        if self.warmup_steps is not None and self.warmup_steps >= budget.steps:
            why = f"the warm-up ({self.warmup_steps} steps) is not shorter than the run ({budget.steps} steps)"
            remedy = "use fewer steps, or warmup with a share of the budget such as 0.05"
            yield KeyConflict(("warmup_steps",), f"{why}; {remedy}")
