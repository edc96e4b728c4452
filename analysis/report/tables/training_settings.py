"""Table of training settings of a report: optimiser, learning rate, schedule and clipping of every group of trials."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from analysis.reading.plan_view import TrialPlan
from analysis.report.wording import NO_VALUE


@dataclass(frozen=True)
class TrainingSettingsRow:
    """Training settings of the trials with the same strategy, swept values and workers: the texts of the cells."""

    strategy: str
    condition: str  # swept keys and values except workers
    workers: int
    batch: int  # samples per step over all workers
    optimiser: str
    rates: str  # of an update, in each training phase
    schedule: str
    clip_norm: str


def make_training_settings_table(trial_plans: Iterable[TrialPlan]) -> tuple[TrainingSettingsRow, ...]:
    """Return one row per group of trials, in the order of the trials.

    Plans that name no optimiser, as those of older versions, give no row.
    """
    return tuple(dict.fromkeys(_make_row(plan) for plan in trial_plans if plan.optimiser))


def _make_row(plan: TrialPlan) -> TrainingSettingsRow:
    return TrainingSettingsRow(
        strategy=plan.label,
        condition=", ".join(f"{key.split('.')[-1]} {value}" for key, value in plan.swept_values),
        workers=plan.workers,
        batch=plan.batch,
        optimiser=describe_component(plan.optimiser, without={"rate"}),
        rates=_describe_rates(plan),
        schedule=describe_component(plan.rate_schedule),
        clip_norm=NO_VALUE if plan.clip_norm is None else f"{plan.clip_norm:g}",
    )


def _describe_rates(plan: TrialPlan) -> str:
    """Return the learning rates of the training phases, with the factor for the batch."""
    text = f"{plan.optimiser['rate']:g}"
    if plan.second_phase and plan.second_phase.optimiser:
        text += f", after the switch {plan.second_phase.optimiser['rate']:g}"
    return text if plan.batch_rate_factor == 1 else f"{text} (× {plan.batch_rate_factor:.3g} for the batch)"


def describe_component(component: Mapping[str, Any], without: Iterable[str] = ()) -> str:
    """Return kind and settings of a component as one phrase; settings that are empty, zero or off are left out."""
    left_out = {"kind", *without}
    settings = [f"{key} {_describe_value(value)}" for key, value in component.items() if key not in left_out and value]
    return " ".join([str(component["kind"]), f"({', '.join(settings)})" if settings else ""]).rstrip()


def _describe_value(value: Any) -> str:
    if isinstance(value, list):
        return " and ".join(map(_describe_value, value))
    return "on" if value is True else f"{value:g}" if isinstance(value, float) else str(value)
