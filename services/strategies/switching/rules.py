"""Rules that decide when a strategy switches to its second training phase.

Some rules decide by the losses, others name a step that is known before the run. A rule has no I/O: at every evaluation
point it receives the losses and returns a decision. Only the first decision to fire counts. Later decisions are still
made, so that their values are in the log until the end of the run.
"""

import sys
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, isnan
from typing import Annotated, Literal, NamedTuple, Self, TypeAlias

from pydantic import Field, PositiveInt, model_validator

from services.schema.component import ScenarioComponent
from services.strategies.base import ScenarioSizes

MIN_DIVISOR = sys.float_info.min  # smallest divisor of a relative change: a loss may be 0
LossSource: TypeAlias = Literal["validation", "train"]
NEVER_REMEDY = "or kind: never for a run without a switch"


@dataclass(frozen=True)
class LossEvaluation:
    """Point of a training run at which losses are measured.

    At this point the switch rule decides whether to switch the strategy. Each evaluation of the model is a point: by
    default one per epoch, otherwise one per `evaluate_every` samples.
    """

    number: int  # from 1
    step: int  # number of finished steps
    validation_loss: float = float("nan")  # mean over the held-out samples
    train_loss_sums: Sequence[tuple[float, int]] = ()  # by worker: sum of losses, samples; since the previous point

    def select_loss(self, loss_source: LossSource, mean_or_max: Literal["mean", "max"]) -> float:
        """Return the validation loss or the training loss of all workers.

        Return NaN if the loss was not measured.
        """
        if loss_source == "validation":
            return self.validation_loss
        means = [(total / samples, samples) for total, samples in self.train_loss_sums if samples]
        if not means:
            return float("nan")
        if mean_or_max == "max":
            return max((mean for mean, _ in means), key=lambda mean: (isnan(mean), mean))
        return sum(mean * samples for mean, samples in means) / sum(samples for _, samples in means)


class SwitchRuleState(NamedTuple):
    """State that a switch rule keeps from one evaluation of the loss to the next."""

    losses: tuple[float, ...] = ()  # the last finite ones
    points: int = 0  # evaluation points so far
    skipped: int = 0  # evaluation points without a finite loss so far


class SwitchRuleDecision(NamedTuple):
    """Decision of a switch rule whether to switch the strategy now.

    The decision contains its reasons. All fields are logged.
    """

    loss: float | None  # at this point; None: the rule uses no loss, or the loss was not finite
    value: float | None  # compared with the threshold; None: too few losses so far
    threshold: float | None
    fires: bool  # whether the strategy switches now
    skipped: int = 0  # evaluation points without a finite loss so far
    gives_up: bool = False  # whether to abort the run: training has diverged, too many losses were not finite


class SwitchRule(ScenarioComponent):
    """Rule that decides when a strategy switches to its second training phase."""

    @property
    def watched_loss_source(self) -> LossSource:
        """Loss that the switch rule uses: the validation loss or the training loss."""
        return "validation"

    def planned_switch_step(self, total_steps: int, steps_per_epoch: int) -> int | None:  # noqa: ARG002 - losses decide
        """Return the training step before which the strategy switches.

        Return None if the strategy never switches, or if losses decide when.
        """
        return None

    def switch_time_conflict(self, scenario_sizes: ScenarioSizes) -> tuple[str, str] | None:  # noqa: ARG002 - most fit any budget
        """Return a key of this rule that does not fit the number of training steps or of evaluations.

        Also return the reason. Return None if all keys fit.
        """
        return None

    @abstractmethod
    def decide_strategy_switch(
        self, loss_evaluation: LossEvaluation, rule_state: SwitchRuleState
    ) -> tuple[SwitchRuleDecision, SwitchRuleState]:
        """Return the decision of the rule at an evaluation point, and the next state of the rule."""


class PlateauRule(SwitchRule):
    """Switch rule that fires at a plateau of the loss.

    At a plateau, the mean of |Lᵢ - Lᵢ₋₁| / Lᵢ₋₁ over a window of losses Lᵢ is at most a threshold. N. Provatas, I.
    Chalas, I. Konstantinou, N. Koziris, "Strategy-Switch", IEEE Access 13, 2025, with the numbers of a public
    implementation: six losses, so five changes, and a threshold of 0.01. If a loss decays to zero as exp(-t/τ), its
    relative change stays 1 - exp(-1/τ), and the rule may never fire. Noise with relative standard deviation σ adds 1.13
    σ to the mean change. So use a loss with a lower bound above zero, averaged over many samples.
    """

    kind: Literal["plateau"] = "plateau"
    window: int = Field(
        6, ge=2, description="number of last evaluations whose losses are compared; one more than the changes averaged"
    )
    threshold: float = Field(0.01, gt=0, description="mean relative change of the loss up to which the rule fires")
    loss: LossSource = Field(
        "validation",
        description="loss of the held-out samples (validation), or mean training loss since the last evaluation "
        "(train); by default, one epoch",
    )
    aggregate: Literal["mean", "max"] = Field(
        "mean", description="aggregation of the workers' training losses: mean over all samples or maximum over workers"
    )
    min_points: PositiveInt = Field(6, description="number of evaluations before which the rule never fires")
    force_at: PositiveInt | None = Field(
        None, description="number of the evaluation at which the rule fires whatever the losses are"
    )
    abort_after: PositiveInt = Field(3, description="number of infinite or NaN losses after which the run is aborted")

    @property
    def watched_loss_source(self) -> LossSource:
        return self.loss

    def switch_time_conflict(self, scenario_sizes: ScenarioSizes) -> tuple[str, str] | None:
        """Return the conflict of the key `force_at` with the number of evaluations.

        Return the key and the reason if `force_at` is not before the last evaluation, else None.
        """
        evaluations = scenario_sizes.evaluations
        if self.force_at is None or self.force_at < evaluations:
            return None
        remedy = _remedy_for_late_switch(evaluations - 1)
        noun = "epoch" if evaluations * scenario_sizes.steps_per_epoch == scenario_sizes.steps else "evaluation"
        count = f"{evaluations} {noun}{'s' * (evaluations != 1)}"
        return "force_at", f"force_at {self.force_at} is too late: the run has {count}; {remedy}"

    def decide_strategy_switch(
        self, loss_evaluation: LossEvaluation, rule_state: SwitchRuleState
    ) -> tuple[SwitchRuleDecision, SwitchRuleState]:
        loss = loss_evaluation.select_loss(self.loss, self.aggregate)
        points, forced = rule_state.points + 1, rule_state.points + 1 == self.force_at
        if not isfinite(loss):
            skipped = rule_state.skipped + 1
            gives_up = skipped >= self.abort_after
            decision = SwitchRuleDecision(None, None, self.threshold, forced and not gives_up, skipped, gives_up)
            return decision, SwitchRuleState(rule_state.losses, points, skipped)
        losses = (*rule_state.losses, loss)[-self.window :]
        value = mean_relative_change(losses) if len(losses) == self.window else None
        fires = forced or (value is not None and points >= self.min_points and value <= self.threshold)
        decision = SwitchRuleDecision(loss, value, self.threshold, fires, rule_state.skipped)
        return decision, SwitchRuleState(losses, points, rule_state.skipped)


def mean_relative_change(losses: Sequence[float]) -> float:
    """Return the mean relative change between consecutive losses.

    The relative change from loss Lᵢ₋₁ to loss Lᵢ is |Lᵢ - Lᵢ₋₁| / Lᵢ₋₁. At least two losses are needed.
    """
    changes = [abs(loss - previous) / max(abs(previous), MIN_DIVISOR) for previous, loss in pairwise(losses)]
    return sum(changes) / len(changes)


class AtStepRule(SwitchRule):
    """Switch rule that fires before a given training step.

    The step is known before the run. Step 0 is the first step. The step can be given as a fraction of the budget, which
    is the timing policy of S. Li, O. Mangoubi, L. Xu, T. Guo, "Sync-Switch", ICDCS 2021.
    """

    kind: Literal["at"] = "at"
    step: int | None = Field(None, ge=0, description="step of the budget, from 0, before which the rule fires")
    fraction: float | None = Field(None, ge=0, le=1, description="share of all steps before the rule fires; 1: never")
    epoch: int | None = Field(None, ge=0, description="number of epochs after which the rule fires")

    @model_validator(mode="after")
    def _check_single_switch_time(self) -> Self:
        if sum(moment is not None for moment in (self.step, self.fraction, self.epoch)) != 1:
            raise ValueError("write exactly one of step, fraction and epoch")
        return self

    def planned_switch_step(self, total_steps: int, steps_per_epoch: int) -> int | None:
        step = self._declared_switch_step(total_steps, steps_per_epoch)
        return step if step < total_steps else None

    def switch_time_conflict(self, scenario_sizes: ScenarioSizes) -> tuple[str, str] | None:
        """Return the conflict of a declared switch that comes after the last step.

        Return the key (`step` or `epoch`) and the reason if the key puts the switch after the last step, else None.
        `fraction: 1` is allowed, because it may be one end of a sweep.
        """
        total_steps, steps_per_epoch = scenario_sizes.steps, scenario_sizes.steps_per_epoch
        if self.step is not None and self.step >= total_steps:
            last = total_steps - 1
            remedy = _remedy_for_late_switch(last)
            reason = f"step {self.step} is too late: the run has steps 0 to {last}; {remedy}"
            return "step", reason
        if self.epoch is not None and self.epoch * steps_per_epoch >= total_steps:
            epochs = total_steps // steps_per_epoch
            count = f"{epochs} epoch{'s' * (epochs != 1)}"
            remedy = _remedy_for_late_switch(epochs - 1)
            reason = f"epoch {self.epoch} is too late: the run has {count}; {remedy}"
            return "epoch", reason
        return None

    def _declared_switch_step(self, total_steps: int, steps_per_epoch: int) -> int:
        """Return the declared step before which the strategy switches.

        It may be after the last step of the run.
        """
        if self.fraction is not None:
            return round(self.fraction * total_steps)
        return self.step if self.step is not None else (self.epoch or 0) * steps_per_epoch

    def decide_strategy_switch(
        self, loss_evaluation: LossEvaluation, rule_state: SwitchRuleState
    ) -> tuple[SwitchRuleDecision, SwitchRuleState]:
        """Return the decision not to switch the strategy at this evaluation.

        For this rule, the trial plan contains the step of the switch.
        """
        return SwitchRuleDecision(None, None, None, fires=False), rule_state._replace(points=loss_evaluation.number)


class NeverRule(SwitchRule):
    """Switch rule that never fires.

    Training gives bitwise the result of the first training phase alone.
    """

    kind: Literal["never"] = "never"

    def decide_strategy_switch(
        self, loss_evaluation: LossEvaluation, rule_state: SwitchRuleState
    ) -> tuple[SwitchRuleDecision, SwitchRuleState]:
        return SwitchRuleDecision(None, None, None, fires=False), rule_state._replace(points=loss_evaluation.number)


AnySwitchRule: TypeAlias = Annotated[PlateauRule | AtStepRule | NeverRule, Field(discriminator="kind")]


def _remedy_for_late_switch(latest: int) -> str:
    """Return how to correct a switch after the end of training, given the latest allowed value of the key.

    The value 0 would switch before the first step; it is not proposed.
    """
    return f"{f'use at most {latest}' if latest > 0 else 'declare more epochs'}, {NEVER_REMEDY}"
