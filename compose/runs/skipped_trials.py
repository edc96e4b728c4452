"""Trials of a scenario that are not run because this host lacks a device that their workers declare."""

from collections.abc import Sequence

from compose.engines.base import TrialEngine
from services.plan import Plan
from services.scenario.scenario import Scenario
from services.schema.component import FrozenRecord
from services.schema.errors import UserError


class SkippedTrial(FrozenRecord):
    """A planned trial that is not run, as the manifest of a run records it."""

    trial: str  # name
    strategy: str  # label in the scenario
    workers: int
    labels: dict[str, str | int | float]  # swept key -> value
    reason: str


def find_skipped_trials(scenario: Scenario, plans: Sequence[Plan], engine: TrialEngine) -> tuple[SkippedTrial, ...]:
    """Return the trials that need a GPU, if the scenario skips these trials on hosts without a GPU and this is one.

    Raises:
        UserError: no trial would be left.
    """
    plans_with_gpu = [plan for plan in plans if plan.needs_gpu]
    if scenario.missing_gpu == "fail" or not plans_with_gpu or (reason := engine.missing_gpu_reason()) is None:
        return ()
    if len(plans_with_gpu) == len(plans):
        raise UserError(f"{scenario.name}: every trial needs a GPU, and there is no GPU on this host ({reason})")
    return tuple(
        SkippedTrial(
            trial=plan.trial,
            strategy=plan.label,
            workers=plan.workers,
            labels=plan.labels,
            reason=f"no GPU on this host ({reason})",
        )
        for plan in plans_with_gpu
    )


def without_skipped_trials(plans: Sequence[Plan], skipped_trials: Sequence[SkippedTrial]) -> tuple[Plan, ...]:
    """Return the plans of the trials that are run."""
    skipped_names = {skipped.trial for skipped in skipped_trials}
    return tuple(plan for plan in plans if plan.trial not in skipped_names)


def describe_skipped_trials(skipped_trials: Sequence[SkippedTrial]) -> str:
    """Return a sentence on skipped trials for the terminal."""
    count, reason = len(skipped_trials), skipped_trials[0].reason
    return f"{count} trial{'s' * (count != 1)} will not run (missing_gpu: skip): {reason}"
