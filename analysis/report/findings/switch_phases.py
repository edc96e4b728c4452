"""Clause that compares a switching strategy with the strategies of its two phases, each used for the whole training."""

from collections.abc import Iterator

from analysis.metrics.comparisons.strategy_comparison import (
    FasterAnswer,
    StrategyTimeGap,
    compare_group_pairs,
    find_group_time_gap,
)
from analysis.report.fastest import format_missed_repeats
from analysis.report.wording import format_interval, format_number, join_names
from analysis.results.summary import RunSummary
from analysis.results.trial_group import TrialGroup

PHASE_COUNT = 2


def describe_switch_vs_phases(summary: RunSummary, group: TrialGroup) -> str:
    """Return a clause on whether a switching strategy reaches the target sooner than its two strategies alone.

    The clause names each strategy that alone is significantly faster. If the switching strategy is significantly faster
    than both, the clause says so. Otherwise the result is empty: without a target, if the run lacks one of the two
    strategies, or if a difference is too close to call or not measured.
    """
    gaps = [gap for gap in _compare_with_phases(summary, group) if gap.time_metric == "time_to_target"]
    answers = [gap.answer_is_faster(group) for gap in gaps]
    if answers == [FasterAnswer.YES] * PHASE_COUNT:
        factors = join_names(map(_describe_gap, gaps))
        return f"{group.strategy} reaches {summary.target} sooner than each of its two strategies alone: {factors}"
    lost = [gap for gap, answer in zip(gaps, answers, strict=True) if answer == FasterAnswer.NO]
    return "; ".join(
        f"{gap.faster.strategy} alone reaches {summary.target} sooner: {_describe_gap(gap)}" for gap in lost
    )


def _compare_with_phases(summary: RunSummary, group: TrialGroup) -> list[StrategyTimeGap]:
    phases = list(_find_phase_groups(summary, group))
    # Groups with the same swept values keep the p-values of the comparison of all strategies.
    gaps = (*summary.strategy_time_gaps, *compare_group_pairs((group, phase) for phase in phases))
    return [gap for phase in phases if (gap := find_group_time_gap(group, phase, gaps))]


def _find_phase_groups(summary: RunSummary, group: TrialGroup) -> Iterator[TrialGroup]:
    """Yield the groups of trials that trained only with the first or only with the second strategy of a switch."""
    first = group.trials[0]
    if first.switch is None:
        return
    for label in (first.switch.before_strategy, first.switch.after_strategy):
        for other in summary.trial_groups:
            has_same_values = other.trials[0].labels.items() <= first.labels.items()
            if other.strategy == label and other.workers == group.workers and has_same_values:
                yield other


def _describe_gap(gap: StrategyTimeGap) -> str:
    """Return by how much the faster group is faster, such as "1.47 times as fast as switch [1.40, 1.55]"."""
    if gap.slower.has_reached_target:
        ratio = format_number(gap.comparison.ratio)
        return f"{ratio} times as fast as {gap.slower.strategy}{format_interval(gap.comparison.interval)}"
    return f"{gap.slower.strategy} missed the target{format_missed_repeats(gap.slower)}"
