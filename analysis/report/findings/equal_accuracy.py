"""Main finding of a sweep without a target: the best accuracy, and the fastest condition that is as accurate."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.metrics.comparisons.quality_comparison import (
    SIMILAR_QUALITY_TOLERANCE,
    format_mean_quality,
    mean_quality,
    quality_p_value,
)
from analysis.report.wording import format_percentage, join_names
from analysis.results.summary import RunSummary
from analysis.results.swept_values import groups_by_swept_values, omit_repeated_keys, seconds_per_sample
from analysis.results.trial_group import TrialGroup
from analysis.statistics.convergence_check import SIGNIFICANCE_LEVEL
from analysis.statistics.holm import holm_adjust

ACCURACY_METRIC = "accuracy"


@dataclass(frozen=True)
class AccuracyRanking:
    """Groups of trials whose accuracy does not differ significantly from the best accuracy.

    `as_accurate` are the best group and the groups whose accuracy is lower by at most SIMILAR_QUALITY_TOLERANCE. The
    accuracy of the groups in `too_close` is lower by more, which is too close to call.
    """

    best: TrialGroup
    as_accurate: tuple[TrialGroup, ...]
    too_close: tuple[TrialGroup, ...]


def equal_accuracy_finding(summary: RunSummary) -> str:
    """Return a sentence on the swept values that give the best accuracy.

    The sentence also names the fastest swept values whose accuracy is about the same, and those whose accuracy is too
    close to call. Applies to one strategy with several repeated combinations of swept values, without a target.
    """
    by_strategy = groups_by_swept_values(summary)
    if summary.target or len(by_strategy) != 1 or len(summary.strategies) != 1:
        return ""
    groups = [group for group in by_strategy[0] if all(ACCURACY_METRIC in trial.final for trial in group.trials)]
    if len(groups) < len(by_strategy[0]) or not all(group.trials[1:] and seconds_per_sample(group) for group in groups):
        return ""
    ranking = _rank_accuracies(groups)
    best = ranking.best
    fastest = min(ranking.as_accurate, key=seconds_per_sample)
    best_text = f"{best.strategy} ends at its best {ACCURACY_METRIC}, {_format_accuracy(best)}, with {best.condition}"
    equal_text = _describe_best_as_fastest(ranking, groups) if fastest is best else _describe_faster(ranking, fastest)
    unclear = [f"{group.condition} ({_format_accuracy(group)})" for group in ranking.too_close]
    unclear_text = f", but the difference to {join_names(unclear)} is too close to call" if unclear else ""
    return f"{best_text}; {equal_text}{unclear_text}"


def _describe_best_as_fastest(ranking: AccuracyRanking, groups: Sequence[TrialGroup]) -> str:
    """Return a clause on the time, where no faster condition is known to be as accurate as the best one."""
    faster = [group for group in groups if seconds_per_sample(group) < seconds_per_sample(ranking.best)]
    if not faster:
        return "no other condition takes less time"
    if any(group in ranking.too_close for group in faster):
        return "no condition that takes less time is known to be as accurate"
    return "every condition that takes less time differs significantly"


def _describe_faster(ranking: AccuracyRanking, fastest: TrialGroup) -> str:
    others = join_names(omit_repeated_keys(group.condition for group in ranking.as_accurate if group != ranking.best))
    repeats = min(len(group.trials) for group in ranking.as_accurate)
    equal_text = f"over {repeats} repeats there is no significant difference to {others} (p ≥ {SIGNIFICANCE_LEVEL:g})"
    share = format_percentage(seconds_per_sample(fastest) / seconds_per_sample(ranking.best))
    fastest_text = f"{fastest.condition} ({_format_accuracy(fastest)})"
    return f"{equal_text}, and with {fastest_text} the same samples take {share} of the time"


def _rank_accuracies(groups: Sequence[TrialGroup]) -> AccuracyRanking:
    best = max(groups, key=_mean_accuracy)
    others = [group for group in groups if group is not best]
    p_values = holm_adjust(np.array([quality_p_value(best, group, ACCURACY_METRIC) for group in others]))
    undecided = [group for group, p in zip(others, p_values, strict=True) if p >= SIGNIFICANCE_LEVEL]
    least = (1 - SIMILAR_QUALITY_TOLERANCE) * _mean_accuracy(best)
    near = [group for group in undecided if _mean_accuracy(group) >= least]
    as_accurate = tuple(group for group in groups if group is best or group in near)
    return AccuracyRanking(best, as_accurate, tuple(group for group in undecided if group not in near))


def _mean_accuracy(trial_group: TrialGroup) -> float:
    return mean_quality(trial_group, ACCURACY_METRIC)


def _format_accuracy(trial_group: TrialGroup) -> str:
    return format_mean_quality(trial_group, ACCURACY_METRIC)
