"""Fastest group of trials of a run, and the groups that are too close to call against it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.metrics.comparisons.strategy_comparison import StrategyTimeGap, compare_group_pairs, find_group_time_gap
from analysis.report.wording import format_interval, format_number, shorten_list
from analysis.results.comparable_groups import choose_time_metric
from analysis.results.summary import RunSummary
from analysis.results.trial_group import TimeMetric, TrialGroup

UNTRIMMED_REPEATS = 2  # number of repeats up to which the olympic mean drops none
TIE_RATIO = 1.05  # ratio of times up to which single runs count as equally fast: MLPerf's runs spread by about 7 %
MAX_LISTED = 3  # most items that a sentence lists


@dataclass(frozen=True)
class TwoFastestStrategies:
    """The fastest group of trials (winner), compared with the fastest group of another strategy (rival).

    Without another strategy, the rival is the next group of the same strategy, with other workers or swept values.
    """

    winner: TrialGroup
    rival: TrialGroup | None  # None where there is only one group
    time_metric: TimeMetric
    target: str | None
    difference: StrategyTimeGap | None  # over their shared seeds; None where they cannot be paired: not measured
    tied: tuple[TrialGroup, ...]  # groups whose times are too close to call against the winner's
    sample_name: str = "samples"  # name of the unit of training in the sentence

    @property
    def second_to_first_ratio(self) -> float:
        """Time of the rival / time of the fastest group (winner), over shared seeds where there are any.

        Infinite if the rival missed the target, NaN if the time of the winner is 0.
        """
        if self.rival is None:
            return 1.0
        return _time_ratio(self.winner, self.rival, self.time_metric, self.difference)

    @property
    def has_other_strategy(self) -> bool:
        """Whether the rival ran another strategy than the winner."""
        return self.rival is not None and self.rival.strategy != self.winner.strategy

    @property
    def is_tied(self) -> bool:
        """Whether another group is too close to call, so that no group may be called the fastest."""
        return bool(self.tied)

    @property
    def description(self) -> str:
        """Sentence that states which group is fastest and by how much, or which groups are too close to call."""
        text = f"{self.winner.description} {self._winner_time_clause}"
        if self.is_tied:
            names = [group.description for group in self.tied]
            return f"{text}, but the difference to {shorten_list(names, MAX_LISTED, ', ')} is too close to call"
        if self.rival is None or math.isnan(self.second_to_first_ratio):
            return text
        if not math.isfinite(self.second_to_first_ratio):
            missed = format_missed_repeats(self.rival)
            return f"{text}; the second fastest, {self.rival.description}, missed the target{missed}"
        interval = format_interval(self.difference.comparison.interval) if self.difference else ""
        reason = "" if self.difference else f" (significance not measured: {_explain_no_test(self.winner, self.rival)})"
        ratio = format_number(self.second_to_first_ratio)
        return f"{text}, {ratio} times as fast as {self.rival.description}{interval}{reason}"

    @property
    def _winner_time_clause(self) -> str:
        """Predicate of the sentence on the fastest group, such as "reaches accuracy ≥ 0.95 first, in 1.23 s"."""
        if self.time_metric == "time_to_target":
            repeats = len(self.winner.trials)
            mean = f" ({'olympic ' * (repeats > UNTRIMMED_REPEATS)}mean of {repeats} repeats)" if repeats > 1 else ""
            first = " first," if self._is_fastest else ""
            return f"reaches {self.target}{first} in {format_number(self.winner.time_to_target_s)} s{mean}"
        time_s = self.winner.mean_time_s(self.time_metric)
        verb = "trains fastest," if self._is_fastest else "trains at"
        if not time_s:
            return "takes no virtual time"
        return f"{verb} {format_number(1 / time_s)} {self.sample_name} per second"

    @property
    def _is_fastest(self) -> bool:
        """Whether there is another group, and none is too close to call."""
        return self.rival is not None and not self.is_tied


def compare_winner_with_rival(summary: RunSummary) -> TwoFastestStrategies | None:
    """Compare the fastest group of trials of a run with all others.

    Times are times to the target if a group of trials reached it, else per sample. None where no trial finished.
    """
    return compare_fastest_group(summary.trial_groups, summary)


def compare_fastest_group(trial_groups: Sequence[TrialGroup], summary: RunSummary) -> TwoFastestStrategies | None:
    """Compare the fastest of several groups of trials with the others. None without groups."""
    time_metric = choose_time_metric(trial_groups)
    ranked = sorted(trial_groups, key=lambda group: group.mean_time_s(time_metric))
    if not ranked:
        return None
    winner, *others = ranked
    # Groups with the winner's workers and swept values keep the p-values of the comparison of all strategies.
    gaps = (*summary.strategy_time_gaps, *compare_group_pairs((winner, other) for other in others))
    differences = {group.name: find_group_time_gap(winner, group, gaps) for group in others}
    tied = tuple(group for group in others if is_too_close(winner, group, time_metric, differences[group.name]))
    rival = next(iter(_find_rival_groups(winner, others)), None)
    difference = differences[rival.name] if rival else None
    name = "worker steps" if summary.samples_are_steps else "samples"
    return TwoFastestStrategies(winner, rival, time_metric, summary.target, difference, tied, name)


def is_too_close(
    winner: TrialGroup, other: TrialGroup, time_metric: TimeMetric, difference: StrategyTimeGap | None
) -> bool:
    """Return whether the times of the fastest group and another group are too close to call.

    The paired test decides where there is one, else (single runs) whether the ratio is below TIE_RATIO. A group that
    never reached the target is not close to one that did.
    """
    if time_metric == "time_to_target" and not any(trial.time_to_target_s for trial in other.trials):
        return False
    if difference:
        return not difference.is_significant
    return _time_ratio(winner, other, time_metric, None) < TIE_RATIO


def _time_ratio(
    winner: TrialGroup, other: TrialGroup, time_metric: TimeMetric, difference: StrategyTimeGap | None
) -> float:
    if difference:
        return difference.comparison.ratio
    winner_s, other_s = (group.mean_time_s(time_metric) for group in (winner, other))
    return other_s / winner_s if winner_s else math.nan


def _explain_no_test(first_group: TrialGroup, second_group: TrialGroup) -> str:
    """Return why no paired test compares the times of two groups."""
    if len(first_group.trials) == len(second_group.trials) == 1:
        return "one run each"
    return "fewer than two shared seeds"


def format_missed_repeats(group: TrialGroup) -> str:
    """Return in how many repeats a group missed the target, with a leading space: " in 3 of 5 repeats".

    Empty for a single run.
    """
    missed = sum(trial.time_to_target_s is None for trial in group.trials)
    return f" in {missed} of {len(group.trials)} repeats" if len(group.trials) > 1 else ""


def _find_rival_groups(winner: TrialGroup, ranked_others: Sequence[TrialGroup]) -> list[TrialGroup]:
    """Return the groups of trials that the fastest group, `winner`, is compared with, the fastest first.

    These groups ran other strategies with the same swept values as the winner. The one-worker baseline is left out if
    there are other groups. If the winner is a single worker, it is compared with groups of several workers where there
    are any. Without another strategy, all other groups are rivals.
    """
    others = [
        group for group in ranked_others if group.strategy != winner.strategy and group.condition == winner.condition
    ]
    sharing = [group for group in others if group.workers > 1] if winner.workers == 1 else []
    distributed = [group for group in others if not group.is_baseline]
    return sharing or distributed or [group for group in ranked_others if not group.is_baseline] or others
