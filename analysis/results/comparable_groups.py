"""Comparable groups of trials: with one time metric, with the same seeds, with their baseline, by step time."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from analysis.results.trial_group import TimeMetric, TrialGroup


def choose_time_metric(trial_groups: Iterable[TrialGroup], *, require_all: bool = False) -> TimeMetric:
    """Return which time is used to compare groups of trials.

    It is the time to the target if any group reached the target, else the time per sample. With `require_all` it is the
    time to the target only if all groups reached it. Ratios of times need that, because a ratio with an infinite time
    has no meaning.
    """
    reached = [group.has_reached_target for group in trial_groups]
    return "time_to_target" if (all if require_all else any)(reached) else "time_to_samples"


def have_same_seeds(trial_groups: Sequence[TrialGroup]) -> bool:
    """Return whether all groups of trials ran the same seeds, each seed once.

    More than one seed is needed.
    """
    seeds = [[trial.seed for trial in group.trials_by_seed] for group in trial_groups]
    return len(set(seeds[0])) == len(seeds[0]) > 1 and all(each == seeds[0] for each in seeds)


def restrict_to_shared_seeds(first_group: TrialGroup, second_group: TrialGroup) -> tuple[TrialGroup, TrialGroup]:
    """Return two groups of trials with only those repeats whose seeds ran in both groups.

    Results differ more between seeds than between repeats of one seed.
    """
    shared = first_group.seeds & second_group.seeds
    first_shared, second_shared = (
        replace(group, trials=tuple(trial for trial in group.trials if trial.seed in shared))
        for group in (first_group, second_group)
    )
    return first_shared, second_shared


def find_baseline(trial_group: TrialGroup, candidate_groups: Iterable[TrialGroup]) -> TrialGroup | None:
    """Return the one-worker baseline that ran with the same swept values as a group of trials.

    Return None without one. Swept keys of a strategy, such as its number of servers, do not apply to a baseline.
    """
    baselines = (candidate for candidate in candidate_groups if candidate.is_baseline)
    return next((baseline for baseline in baselines if _is_baseline_of(baseline, trial_group)), None)


def sort_by_step_time(trial_groups: Sequence[TrialGroup]) -> list[TrialGroup]:
    """Return groups of trials, sorted by step time if they differ only by strategy.

    Otherwise, the given order is kept.
    """
    kinds = {(group.condition, group.workers) for group in trial_groups if not group.is_baseline}
    return list(trial_groups) if len(kinds) > 1 else sorted(trial_groups, key=lambda group: group.median_step_s or 0.0)


def _is_baseline_of(baseline_group: TrialGroup, trial_group: TrialGroup) -> bool:
    """Return whether a group of trials has the same swept values as a one-worker baseline.

    All swept keys of the baseline except workers are compared.
    """
    labels = trial_group.trials[0].labels
    baseline_labels = ((key, value) for key, value in baseline_group.trials[0].labels.items() if key != "workers")
    return all(labels.get(key) == value for key, value in baseline_labels)
