"""Trials of a scenario that are not run because this host lacks a device or packages that they need."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Literal

from compose.commands.packages import explain_missing_packages
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
    skipped_by: Literal["missing_gpu", "missing_packages"] = "missing_gpu"  # key of the scenario


def find_skipped_trials(scenario: Scenario, plans: Sequence[Plan], engine: TrialEngine) -> tuple[SkippedTrial, ...]:
    """Return the trials that the scenario skips on this host, because their packages or a GPU are missing.

    Raises:
        UserError: no trial would be left, or packages are missing and the scenario does not skip the trials.
    """
    without_packages = find_trials_without_packages(scenario, plans)
    with_packages = without_skipped_trials(plans, without_packages)
    return (*without_packages, *_find_trials_without_gpu(scenario, with_packages, engine))


def find_trials_without_packages(scenario: Scenario, plans: Sequence[Plan]) -> tuple[SkippedTrial, ...]:
    """Return the trials whose packages are missing, if the scenario skips them.

    Raises:
        UserError: packages are missing, and no trial would be left or the scenario does not skip the trials.
    """
    skipped = _describe_trials(plans, "missing_packages", explain_missing_packages)
    if skipped and scenario.missing_packages == "fail":
        raise UserError(
            f"trial {skipped[0].trial}: {skipped[0].reason}, or write missing_packages: skip to leave out such trials"
        )
    _check_some_trial_is_left(scenario, plans, skipped)
    return skipped


def _find_trials_without_gpu(
    scenario: Scenario, plans: Sequence[Plan], engine: TrialEngine
) -> tuple[SkippedTrial, ...]:
    """Return the trials that need a GPU, if the scenario skips these trials on hosts without a GPU and this is one."""
    if scenario.missing_gpu == "fail" or not any(plan.needs_gpu for plan in plans):
        return ()
    if (cause := engine.missing_gpu_reason()) is None:
        return ()
    reason = f"no GPU on this host ({cause})"
    skipped = _describe_trials(plans, "missing_gpu", lambda plan: reason if plan.needs_gpu else None)
    _check_some_trial_is_left(scenario, plans, skipped)
    return skipped


def _describe_trials(
    plans: Sequence[Plan],
    skipped_by: Literal["missing_gpu", "missing_packages"],
    explain: Callable[[Plan], str | None],
) -> tuple[SkippedTrial, ...]:
    """Return the trials for which `explain` returns a reason."""
    return tuple(
        SkippedTrial(
            trial=plan.trial,
            strategy=plan.label,
            workers=plan.workers,
            labels=plan.labels,
            reason=reason,
            skipped_by=skipped_by,
        )
        for plan in plans
        if (reason := explain(plan)) is not None
    )


def _check_some_trial_is_left(scenario: Scenario, plans: Sequence[Plan], skipped: Sequence[SkippedTrial]) -> None:
    if skipped and len(skipped) == len(plans):
        raise UserError(f"{scenario.name}: this host can run no trial: {skipped[0].reason}")


def without_skipped_trials(plans: Sequence[Plan], skipped_trials: Sequence[SkippedTrial]) -> tuple[Plan, ...]:
    """Return the plans of the trials that are run."""
    skipped_names = {skipped.trial for skipped in skipped_trials}
    return tuple(plan for plan in plans if plan.trial not in skipped_names)


def describe_skipped_trials(skipped_trials: Sequence[SkippedTrial]) -> Iterator[str]:
    """Yield a sentence for the terminal on the skipped trials of each reason."""
    for (key, reason), group in groupby(skipped_trials, lambda skipped: (skipped.skipped_by, skipped.reason)):
        count = len([*group])
        yield f"{count} trial{'s' * (count != 1)} will not run ({key}: skip): {reason}"
