"""Comparisons of the times of strategies, paired by seed.

Whether a strategy is faster than another has four answers: yes, no, too close to call, and not measured. The module
also checks for implausibly few samples to the target.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations

import numpy as np

from analysis.results.comparable_groups import (
    choose_time_metric,
    find_baseline,
    have_same_seeds,
    restrict_to_shared_seeds,
)
from analysis.results.trial_group import TimeMetric, TrialGroup
from analysis.statistics.convergence_check import SIGNIFICANCE_LEVEL, ConvergenceCheck, compare_convergence
from analysis.statistics.holm import holm_adjust
from analysis.statistics.paired_comparison import PairedComparison, compare_times_by_seed


class FasterAnswer(StrEnum):
    """Answer to the question whether one group of trials is faster than another."""

    YES = "yes"
    NO = "no"
    TOO_CLOSE = "too close to call"
    NOT_MEASURED = "not measured"  # the groups share fewer than two seeds


@dataclass(frozen=True)
class StrategyTimeGap:
    """Difference in time between two groups of trials, measured in trial pairs of equal seed."""

    faster: TrialGroup  # by the mean over all its repeats
    slower: TrialGroup
    time_metric: TimeMetric
    comparison: PairedComparison
    p_adjusted: float  # for all comparisons of the run (Holm)

    @property
    def has_unpaired_repeats(self) -> bool:
        """Whether some repeats have no partner with the same seed, for example because a trial failed."""
        return self.comparison.pairs < max(len(self.faster.trials), len(self.slower.trials))

    @property
    def is_significant(self) -> bool:
        """Whether the paired test finds a difference, in the direction of the means over all repeats."""
        return self.p_adjusted < SIGNIFICANCE_LEVEL and self.comparison.ratio > 1

    def answer_is_faster(self, group: TrialGroup) -> FasterAnswer:
        """Return whether one of the two groups, `group`, is faster than the other."""
        if not self.is_significant:
            return FasterAnswer.TOO_CLOSE
        return FasterAnswer.YES if group.name == self.faster.name else FasterAnswer.NO


def compare_strategies(trial_groups: Sequence[TrialGroup]) -> tuple[StrategyTimeGap, ...]:
    """Compare the times of every two groups of trials that differ only in strategy.

    The two groups must share two seeds or more.

    Times are times to the target where one of the two groups reached it, else seconds per sample. Groups whose trials
    took no time are left out.
    """
    members = [group for group in trial_groups if not group.is_baseline]
    return compare_group_pairs(
        pair
        for pair in combinations(members, 2)
        if (pair[0].condition, pair[0].workers) == (pair[1].condition, pair[1].workers)
    )


def compare_group_pairs(pairs: Iterable[tuple[TrialGroup, TrialGroup]]) -> tuple[StrategyTimeGap, ...]:
    """Compare the times of pairs of groups, which may have other swept values or workers. p-values are Holm's.

    Pairs that share fewer than two seeds are left out, and so are pairs with trials that took no time.
    """
    compared = [_compare_trial_group_times(*pair) for pair in pairs if _can_compare_times(*pair)]
    adjusted = holm_adjust(np.array([comparison.p_value for *_, comparison in compared]))
    return tuple(StrategyTimeGap(*each, float(p)) for each, p in zip(compared, adjusted, strict=True))


def find_group_time_gap(
    first_group: TrialGroup, second_group: TrialGroup, strategy_time_gaps: Iterable[StrategyTimeGap]
) -> StrategyTimeGap | None:
    """Return the difference in time between two groups of trials.

    Return None if they share fewer than two seeds. The order of the two groups does not matter.
    """
    names = {first_group.name, second_group.name}
    return next((each for each in strategy_time_gaps if {each.faster.name, each.slower.name} == names), None)


def compare_samples_needed(trial_groups: Sequence[TrialGroup]) -> dict[str, ConvergenceCheck]:
    """Compare the samples that each strategy needs to the target with those that one worker needs.

    Only strategies with repeats are compared.

    Keys are `TrialGroup.name`; p-values are adjusted for all groups of trials (Holm). A group that needs significantly
    fewer samples is suspicious: with more workers a model does not learn more from each sample. A group whose baseline
    is missing, ran once or missed the target is left out; `explain_unchecked_samples` returns the reason.
    """
    comparable = (
        group
        for group in _find_repeated_non_baselines(trial_groups)
        if not _missing_baseline_reason(group, trial_groups)
    )
    checks = {group.name: _check_samples_vs_baseline(group, trial_groups) for group in comparable}
    adjusted = holm_adjust(np.array([check.p_value for check in checks.values()]))
    return {name: replace(check, p_value=float(p)) for (name, check), p in zip(checks.items(), adjusted, strict=True)}


def explain_unchecked_samples(trial_groups: Sequence[TrialGroup]) -> str:
    """Return why some strategies could not be compared by samples to the target.

    Only strategies that reached the target are considered.

    The result is empty if all could.
    """
    repeated_groups = (group for group in _find_repeated_non_baselines(trial_groups) if group.has_reached_target)
    reasons = dict.fromkeys(_missing_baseline_reason(group, trial_groups) for group in repeated_groups)
    return " or ".join(filter(None, reasons))


def _find_repeated_non_baselines(trial_groups: Sequence[TrialGroup]) -> list[TrialGroup]:
    return [group for group in trial_groups if not group.is_baseline and len(group.trials) > 1]


def _missing_baseline_reason(trial_group: TrialGroup, all_groups: Sequence[TrialGroup]) -> str:
    """Return why a group of trials has no usable baseline on one worker.

    The result is empty if the group has such a baseline.
    """
    baseline = find_baseline(trial_group, all_groups)
    if baseline is None:
        return "no baseline"
    if len(baseline.trials) == 1:
        return "a baseline that ran once"
    return "" if np.isfinite(baseline.samples_to_target_by_seed).all() else "a baseline that missed its target"


def _check_samples_vs_baseline(trial_group: TrialGroup, all_trial_groups: Sequence[TrialGroup]) -> ConvergenceCheck:
    pair = (trial_group, *filter(None, [find_baseline(trial_group, all_trial_groups)]))
    samples, baseline_samples = (each.samples_to_target_by_seed for each in pair)
    rounding_step, baseline_rounding_step = (each.max_eval_gap_samples for each in pair)
    return compare_convergence(samples, baseline_samples, (rounding_step, baseline_rounding_step))


def _can_compare_times(first_group: TrialGroup, second_group: TrialGroup) -> bool:
    """Return whether the times of two groups of trials can be paired: two shared seeds, and only times above zero."""
    time_metric = choose_time_metric((first_group, second_group))
    pair = restrict_to_shared_seeds(first_group, second_group)
    return have_same_seeds(pair) and all(group.trial_times_s(time_metric).all() for group in pair)


def _compare_trial_group_times(
    first_group: TrialGroup, second_group: TrialGroup
) -> tuple[TrialGroup, TrialGroup, TimeMetric, PairedComparison]:
    """Compare the times of two groups of trials.

    Return the faster group, the slower group, the kind of time compared, and the comparison.
    """
    time_metric = choose_time_metric((first_group, second_group))
    faster, slower = first_group, second_group
    if first_group.mean_time_s(time_metric) > second_group.mean_time_s(time_metric):
        faster, slower = second_group, first_group
    paired_faster, paired_slower = restrict_to_shared_seeds(faster, slower)
    times = (paired_faster.trial_times_s(time_metric), paired_slower.trial_times_s(time_metric))
    intervals_s = (paired_faster.time_rounding_s(time_metric), paired_slower.time_rounding_s(time_metric))
    comparison = compare_times_by_seed(*times, intervals_s)
    return faster, slower, time_metric, comparison
