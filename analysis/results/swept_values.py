"""Effect of swept scenario values on the training time of each strategy.

Training times are for the same number of samples.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from analysis.report.wording import format_interval, format_number, join_names
from analysis.results.comparable_groups import have_same_seeds
from analysis.results.summary import RunSummary
from analysis.results.trial_group import TrialGroup
from analysis.statistics.intervals import ratio_interval

COMPARED_CONDITION_COUNT = 2  # a ConditionEffect compares two conditions
MAX_LISTED_CONDITIONS = 3  # of more combinations beside the first, a sentence lists only the fastest and the slowest
MAX_LISTED_STRATEGIES = 4  # with as many effects or more beside the smallest, a sentence lists only two


@dataclass(frozen=True)
class SweepSlowdown:
    """Slow-down of one strategy by a change of swept values, such as of the link rate."""

    before: TrialGroup
    after: TrialGroup

    @property
    def strategy(self) -> str:
        """Label of the strategy that the change of swept values slows down.

        The label is that of the scenario.
        """
        return self.before.strategy

    @property
    def slowdown_ratio(self) -> float:
        """Ratio of the times per sample after and before the change of swept values.

        It is the time with the second combination of swept values / the time with the first combination.
        """
        return seconds_per_sample(self.after) / seconds_per_sample(self.before)

    @property
    def ratio_text(self) -> str:
        """Ratio as text, with its 95 % interval where both combinations ran repeatedly."""
        times = (self.after.trial_times_s("time_to_samples"), self.before.trial_times_s("time_to_samples"))
        interval = ratio_interval(*times, paired=have_same_seeds((self.before, self.after)))
        return f"{format_number(self.slowdown_ratio)}{format_interval(interval)}"


def groups_by_swept_values(summary: RunSummary) -> list[list[TrialGroup]]:
    """Return the trials of each strategy on its most workers, grouped by swept values.

    There is one group per combination of swept values. The groups are in the scenario's order. A strategy with one
    combination of swept values is left out.
    """
    group_lists = []
    for strategy in summary.strategies:
        of_strategy = [group for group in summary.trial_groups if group.strategy == strategy]
        most_workers = max((group.workers for group in of_strategy), default=0)
        largest = [group for group in of_strategy if group.workers == most_workers]
        if len(largest) > 1:
            group_lists.append(sorted(largest, key=lambda group: summary.swept_values.index(group.condition)))
    return group_lists


def compute_sweep_slowdowns(strategy_groups: Sequence[Sequence[TrialGroup]]) -> list[SweepSlowdown]:
    """Return how much the swept values slow down each strategy, the smallest effect first.

    All effects are between the same two combinations: those with the largest ratio of times for any strategy.
    """
    timed = (groups for groups in strategy_groups if all(seconds_per_sample(group) for group in groups))
    pairs = [_find_fastest_and_slowest(groups) for groups in timed]
    if not pairs:
        return []
    fastest, slowest = max(pairs, key=lambda pair: SweepSlowdown(*pair).slowdown_ratio)
    effects = _find_sweep_slowdowns(strategy_groups, fastest.condition, slowest.condition)
    return sorted(effects, key=lambda effect: effect.slowdown_ratio)


def describe_sweep_slowdown(summary: RunSummary) -> str:
    """Return a part of a sentence on how much the swept values slow down training.

    The result is empty if nothing can be compared. Example: "from uplink 2gbit to uplink 1gbit, the same samples take
    1.0 times as long with aware, 1.9 with flat".
    """
    effects = compute_sweep_slowdowns(groups_by_swept_values(summary))
    if not effects:
        return ""
    if len(effects) == 1 and len(groups := _sweep_with_most_values(summary)) > COMPARED_CONDITION_COUNT:
        return _describe_all_swept_values(groups)
    smallest, *larger = effects
    parts = [f"{smallest.ratio_text} times as long with {smallest.strategy}"]
    listed_effects, rest = (larger, "") if len(larger) < MAX_LISTED_STRATEGIES else (larger[-1:], ", others in between")
    parts += [f"{effect.ratio_text} with {effect.strategy}{rest}" for effect in listed_effects]
    return f"from {smallest.before.condition} to {smallest.after.condition}, the same samples take {', '.join(parts)}"


def _sweep_with_most_values(summary: RunSummary) -> list[TrialGroup]:
    return max(groups_by_swept_values(summary), key=len)


def _describe_all_swept_values(trial_groups: Sequence[TrialGroup]) -> str:
    """Return a part of a sentence on a strategy's times for all swept values.

    The times are relative to the time for the first swept values.
    """
    first, *others = trial_groups
    if len(others) > MAX_LISTED_CONDITIONS:
        return _describe_extreme_swept_values(first, others)
    ratios = join_names(SweepSlowdown(first, group).ratio_text for group in others)
    conditions = join_names(omit_repeated_keys(group.condition for group in others))
    return f"with {conditions} the same samples take {first.strategy} {ratios} times as long as with {first.condition}"


def _describe_extreme_swept_values(first: TrialGroup, others: Sequence[TrialGroup]) -> str:
    """Return a part of a sentence on the times for the fastest and the slowest swept values, relative to the first."""
    extremes = _find_fastest_and_slowest(others)
    ratios = join_names(f"{SweepSlowdown(first, group).ratio_text} with {group.condition}" for group in extremes)
    return f"relative to {first.condition}, the time for the same samples with {first.strategy} is between {ratios}"


def omit_repeated_keys(swept_values: Iterable[str]) -> list[str]:
    """Omit a key that all swept values share, except in the first value.

    For example, "lr 1" and "lr 2" become "lr 1" and "2".
    """
    names = list(swept_values)
    keys = {name.rpartition(" ")[0] for name in names}
    return [*names[:1], *(name.rpartition(" ")[2] for name in names[1:])] if len(keys) == 1 else names


def seconds_per_sample(trial_group: TrialGroup) -> float:
    """Return the seconds per sample of all workers together: the olympic mean over repeated trials."""
    return trial_group.mean_time_s("time_to_samples")


def _find_fastest_and_slowest(trial_groups: Sequence[TrialGroup]) -> tuple[TrialGroup, TrialGroup]:
    ranked = sorted(trial_groups, key=seconds_per_sample)
    return ranked[0], ranked[-1]


def _find_sweep_slowdowns(
    strategy_groups: Sequence[Sequence[TrialGroup]], first_swept_values: str, last_swept_values: str
) -> Iterator[SweepSlowdown]:
    """Yield the slow-down of each strategy from the first to the last swept values.

    Strategies that did not run with both are left out.
    """
    for groups in strategy_groups:
        by_condition = {group.condition: group for group in groups}
        if not {first_swept_values, last_swept_values} <= by_condition.keys():
            continue
        if seconds_per_sample(by_condition[first_swept_values]):
            yield SweepSlowdown(by_condition[first_swept_values], by_condition[last_swept_values])
