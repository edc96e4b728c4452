"""When does a strategy give way to the next one? Rules that look at losses, and rules that know the step beforehand.

A rule is a machine without I/O: it is told every evaluation point, and says what it found and whether it fires. It
fires at most once: whoever asks stops asking then, and goes on telling, so that its value is on record to the end.
"""

import sys
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, isnan
from typing import Annotated, Literal, NamedTuple, Self, TypeAlias

from pydantic import Field, PositiveInt, model_validator

from services.schema.component import Component

SMALLEST = sys.float_info.min  # what a loss is divided by at least: a loss of zero has no relative change
Source: TypeAlias = Literal["validation", "train"]


@dataclass(frozen=True)
class Point:
    """What is known at an evaluation point."""

    number: int  # from 1
    step: int  # that has been finished
    validation: float = float("nan")  # mean loss over the held-out samples
    train: Sequence[tuple[float, int]] = ()  # sum of losses and samples of every worker since the point before

    def loss(self, source: Source, aggregate: Literal["mean", "max"]) -> float:
        """One number; NaN where nothing was measured."""
        told = [(total / samples, samples) for total, samples in self.train if samples]
        if source == "validation" or not told:
            return self.validation if source == "validation" else float("nan")
        if aggregate == "max":
            return max((mean for mean, _ in told), key=lambda mean: (isnan(mean), mean))
        return sum(mean * samples for mean, samples in told) / sum(samples for _, samples in told)


class Past(NamedTuple):
    """What a rule remembers."""

    losses: tuple[float, ...] = ()
    points: int = 0  # evaluation points so far
    skipped: int = 0  # of them without a finite loss


class Judgement(NamedTuple):
    """What a rule found at an evaluation point."""

    loss: float | None  # that it looked at; None: it looks at none, or it was not finite
    value: float | None  # that it compared; None: too little was known
    threshold: float | None  # that it compared with
    fires: bool
    skipped: int = 0  # points without a finite loss so far
    gives_up: bool = False  # training has diverged: so many losses were not finite that nothing can come of it


class SwitchRule(Component):
    """One way to say when."""

    @property
    def source(self) -> Source:
        """Which loss it looks at."""
        return "validation"

    def planned(self, steps: int, steps_per_epoch: int) -> int | None:  # noqa: ARG002 - losses decide
        """Before which step of a budget of `steps` it fires; None: never, or only losses can tell."""
        return None

    def conflict(self, steps: int, steps_per_epoch: int) -> tuple[str, str] | None:  # noqa: ARG002 - most fit any budget
        """A key that makes no sense in a budget of `steps`, and why; None when all do."""
        return None

    @abstractmethod
    def observe(self, point: Point, past: Past) -> tuple[Judgement, Past]:
        """What it finds at an evaluation point, and what it remembers from then on."""


class Plateau(SwitchRule):
    """Fires when the loss has all but stopped changing: mean |Lᵢ - Lᵢ₋₁| / Lᵢ₋₁ over the window ≤ threshold.

    N. Provatas, I. Chalas, I. Konstantinou, N. Koziris, "Strategy-Switch", IEEE Access 13, 2025, as a public
    implementation reads it: six losses make five changes, and 0.01. A loss that goes to zero never fires (its relative
    change stays 1 - exp(-1/τ)), and noise of σ adds 1.13 σ to the value: take a loss with a floor, over many samples.
    """

    kind: Literal["plateau"] = "plateau"
    window: int = Field(6, ge=2, description="how many losses; one more than the changes that are averaged")
    threshold: float = Field(0.01, gt=0, description="mean relative change at or below which it fires")
    loss: Source = Field("validation", description="of the held-out samples, or the mean over an epoch's training")
    aggregate: Literal["mean", "max"] = Field(
        "mean", description="of the workers' training losses: mean over all samples, or the worst worker's"
    )
    min_points: PositiveInt = Field(6, description="evaluation points before which it never fires")
    force_at: PositiveInt | None = Field(None, description="evaluation point at which it fires whatever the losses are")
    abort_after: PositiveInt = Field(3, description="losses that are not finite after which the run is aborted")

    @property
    def source(self) -> Source:
        return self.loss

    def conflict(self, steps: int, steps_per_epoch: int) -> tuple[str, str] | None:
        """A point that is the end, or beyond it: nothing is left to switch."""
        epochs = steps // steps_per_epoch
        if self.force_at is None or self.force_at < epochs:
            return None
        return "force_at", f"comes too late; the budget has {epochs} epochs (write kind: never to mean it)"

    def observe(self, point: Point, past: Past) -> tuple[Judgement, Past]:
        loss = point.loss(self.loss, self.aggregate)
        points, forced = past.points + 1, past.points + 1 == self.force_at
        if not isfinite(loss):
            skipped = past.skipped + 1
            gives_up = skipped >= self.abort_after
            judged = Judgement(None, None, self.threshold, forced and not gives_up, skipped, gives_up)
            return judged, Past(past.losses, points, skipped)
        losses = (*past.losses, loss)[-self.window :]
        value = mean_change(losses) if len(losses) == self.window else None
        fires = forced or (value is not None and points >= self.min_points and value <= self.threshold)
        return Judgement(loss, value, self.threshold, fires, past.skipped), Past(losses, points, past.skipped)


def mean_change(losses: Sequence[float]) -> float:
    """Mean of |Lᵢ - Lᵢ₋₁| / Lᵢ₋₁ over two losses or more."""
    changes = [abs(later - loss) / max(abs(loss), SMALLEST) for loss, later in pairwise(losses)]
    return sum(changes) / len(changes)


class At(SwitchRule):
    """Fires at a moment that is known beforehand; 0 is before the first step.

    S. Li, O. Mangoubi, L. Xu, T. Guo, "Sync-Switch", ICDCS 2021, whose timing policy is a fraction of the workload.
    """

    kind: Literal["at"] = "at"
    step: int | None = Field(None, ge=0, description="before this step of the budget, from 0")
    fraction: float | None = Field(None, ge=0, le=1, description="of the budget's steps; 1 is never")
    epoch: int | None = Field(None, ge=0, description="after so many epochs")

    @model_validator(mode="after")
    def _one_moment(self) -> Self:
        if sum(each is not None for each in (self.step, self.fraction, self.epoch)) != 1:
            raise ValueError("write one of step, fraction and epoch")
        return self

    def planned(self, steps: int, steps_per_epoch: int) -> int | None:
        moment = self._step(steps, steps_per_epoch)
        return moment if moment < steps else None

    def conflict(self, steps: int, steps_per_epoch: int) -> tuple[str, str] | None:
        """A moment past the end; `fraction: 1` may be one end of a sweep and is no mistake."""
        mean_it = "(write kind: never to mean it)"
        if self.step is not None and self.step >= steps:
            return "step", f"never comes; the budget's steps are 0 to {steps - 1} {mean_it}"
        if self.epoch is not None and self.epoch * steps_per_epoch >= steps:
            return "epoch", f"never comes; the budget has {steps // steps_per_epoch} epochs {mean_it}"
        return None

    def _step(self, steps: int, steps_per_epoch: int) -> int:
        if self.fraction is not None:
            return round(self.fraction * steps)
        return self.step if self.step is not None else (self.epoch or 0) * steps_per_epoch

    def observe(self, point: Point, past: Past) -> tuple[Judgement, Past]:
        """The plan knows the moment; here it only counts."""
        return Judgement(None, None, None, fires=False), past._replace(points=point.number)


class Never(SwitchRule):
    """Never fires: the strategy before stays, to the bit."""

    kind: Literal["never"] = "never"

    def observe(self, point: Point, past: Past) -> tuple[Judgement, Past]:
        return Judgement(None, None, None, fires=False), past._replace(points=point.number)


AnySwitchRule: TypeAlias = Annotated[Plateau | At | Never, Field(discriminator="kind")]
