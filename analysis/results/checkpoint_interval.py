"""Declared interval between the checkpoints of a trial, in steps or in seconds."""

from typing import Literal, NamedTuple, TypeAlias

from analysis.report.wording import format_number
from analysis.results.trial_result import TrialResult
from analysis.statistics.centre import Floats

IntervalUnit: TypeAlias = Literal["steps", "s"]


class CheckpointInterval(NamedTuple):
    """Interval from one checkpoint to the next, in the unit in which the scenario declares it."""

    size: float
    unit: IntervalUnit

    def __str__(self) -> str:
        """Return the interval with its unit, such as `20 steps` or `30.0 s`."""
        return f"{self.size:g} steps" if self.unit == "steps" else f"{format_number(self.size)} s"


def declared_interval(trial: TrialResult) -> CheckpointInterval | None:
    """Return the declared interval of a trial's checkpoints; None without checkpoints."""
    if trial.checkpoint_interval_steps is not None:
        return CheckpointInterval(trial.checkpoint_interval_steps, "steps")
    if trial.checkpoint_interval_s is not None:
        return CheckpointInterval(trial.checkpoint_interval_s, "s")
    return None


def interval_seconds(size: float | Floats, unit: IntervalUnit, step_s: float) -> float | Floats:
    """Return intervals between checkpoints in virtual seconds of training.

    Args:
        size: one or more intervals.
        unit: unit of `size`.
        step_s: virtual seconds of a step.
    """
    return size * step_s if unit == "steps" else size
