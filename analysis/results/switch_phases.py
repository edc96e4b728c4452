"""Strategies of a run that train alone as a switching strategy trains before or after its switch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from analysis.results.trial_result import TrialResult


def name_phase_strategies(
    trials: Sequence[TrialResult], settings_by_trial: Mapping[str, Mapping[str, Any]]
) -> list[TrialResult]:
    """Return all trials; those of switching strategies name the strategies of the run that equal their phases.

    Args:
        trials: all trials of the run.
        settings_by_trial: id of a trial -> the keys of its strategy, with all defaults.
    """

    def find_label(switching: TrialResult, phase: str) -> str | None:
        settings = settings_by_trial[switching.id].get(phase)
        return next(
            (
                other.strategy
                for other in trials
                if settings_by_trial[other.id] == settings
                and other.workers == switching.workers
                and other.labels.items() <= switching.labels.items()
            ),
            None,
        )

    return [
        replace(
            trial,
            switch=replace(
                trial.switch,
                before_strategy=find_label(trial, "before"),
                after_strategy=find_label(trial, "after"),
            ),
        )
        if trial.switch
        else trial
        for trial in trials
    ]
