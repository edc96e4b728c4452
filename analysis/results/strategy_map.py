"""Map of the fastest strategy over two swept keys, with one cell for each combination of their values.

A cell makes a claim only if paired tests separate its fastest strategy from every other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analysis.metrics.comparisons.strategy_comparison import (
    FasterAnswer,
    StrategyTimeGap,
    compare_group_pairs,
    find_group_time_gap,
)
from analysis.reading.plan_view import SweptValue, describe_swept_values, swept_values_of_labels
from analysis.report.wording import join_names
from analysis.results.summary import RunSummary
from analysis.results.trial_group import TimeMetric, TrialGroup
from analysis.results.trial_result import TrialResult
from analysis.statistics.centre import median_of_maybe_infinite
from analysis.statistics.holm import holm_adjust

MAP_AXES = 2
WORKERS_LABEL = "workers"


@dataclass(frozen=True)
class StrategyMapCell:
    """Two fastest strategies under one combination of two swept values, and whether tests separate the fastest."""

    x: SweptValue
    y: SweptValue
    time_metric: TimeMetric
    winner: TrialGroup | None = None  # with the least median time; None: the cell has no result
    runner_up: TrialGroup | None = None
    rival_gaps: tuple[StrategyTimeGap | None, ...] = ()  # to the runner-up and slower rivals; None: not measured
    reason: str = ""  # why the cell has no result, or which strategies are missing in its comparison

    @property
    def answer(self) -> FasterAnswer:
        """Answer to whether the winner is faster than every rival.

        It is "too close to call", too, where the median and the mean over the repeats order the two differently.
        """
        answers = [self._answer_is_faster_than_rival(gap) for gap in self.rival_gaps]
        if FasterAnswer.TOO_CLOSE in answers:
            return FasterAnswer.TOO_CLOSE
        return FasterAnswer.NOT_MEASURED if FasterAnswer.NOT_MEASURED in answers or not answers else FasterAnswer.YES

    def _answer_is_faster_than_rival(self, gap: StrategyTimeGap | None) -> FasterAnswer:
        if self.winner is None or gap is None:
            return FasterAnswer.NOT_MEASURED
        if gap.time_metric != self.time_metric or gap.faster.name != self.winner.name:
            return FasterAnswer.TOO_CLOSE
        return gap.answer_is_faster(self.winner)

    @property
    def time_gap(self) -> StrategyTimeGap | None:
        """Difference of the winner and the runner-up, paired by seed; None: not measured."""
        return next(iter(self.rival_gaps), None)

    @property
    def is_separated(self) -> bool:
        """Whether the winner is significantly faster than every rival."""
        return self.answer == FasterAnswer.YES

    @property
    def winner_time_s(self) -> float | None:
        """Median time of the winner over its repeats; None without a result."""
        return median_time_s(self.winner, self.time_metric) if self.winner else None

    @property
    def runner_up_time_s(self) -> float | None:
        """Median time of the runner-up over its repeats; None without a runner-up, infinite if it missed the target."""
        return median_time_s(self.runner_up, self.time_metric) if self.runner_up else None

    @property
    def has_runner_up_time(self) -> bool:
        """Whether the runner-up has a finite median time: it did not miss the target."""
        return self.runner_up_time_s is not None and bool(np.isfinite(self.runner_up_time_s))

    @property
    def ratio(self) -> float | None:
        """Median time of the runner-up / median time of the winner; None if either is unknown or infinite."""
        if not self.winner_time_s or self.runner_up_time_s is None or not self.has_runner_up_time:
            return None
        return self.runner_up_time_s / self.winner_time_s


@dataclass(frozen=True)
class StrategyMap:
    """Fastest strategy for each combination of the values of two swept keys."""

    x_key: str
    y_key: str
    x_values: tuple[SweptValue, ...]  # in the order of the scenario
    y_values: tuple[SweptValue, ...]
    time_metric: TimeMetric
    target: str | None
    cells: tuple[StrategyMapCell, ...]  # y by y, x by x

    @property
    def x_name(self) -> str:
        """Name of the first swept key in texts: the last part of its path."""
        return self.x_key.rpartition(".")[2]

    @property
    def y_name(self) -> str:
        """Name of the second swept key in texts: the last part of its path."""
        return self.y_key.rpartition(".")[2]

    @cached_property
    def separated_cell_counts(self) -> dict[str, int]:
        """Number of cells in which a strategy is significantly the fastest, by strategy, the largest number first."""
        winners = [cell.winner.strategy for cell in self.cells if cell.winner and cell.is_separated]
        return {
            name: winners.count(name) for name in sorted(set(winners), key=lambda name: (-winners.count(name), name))
        }

    @property
    def finding(self) -> str:
        """Sentence without full stop on the number of combinations in which each strategy is the fastest."""
        achievement = f"reaches {self.target} first" if self.time_metric == "time_to_target" else "trains fastest"
        parts = [
            f"{name} {achievement} in {count}" if index == 0 else f"{name} in {count}"
            for index, (name, count) in enumerate(self.separated_cell_counts.items())
        ]
        fastest = join_names(parts) or "no strategy is proven to be the fastest in any"
        texts = [fastest, join_names(self._unseparated_texts)]
        return f"of {len(self.cells)} combinations of {self.x_name} and {self.y_name}, {'; '.join(filter(None, texts))}"

    @property
    def _unseparated_texts(self) -> list[str]:
        """Numbers of combinations without a proven fastest strategy, with the reason."""
        with_result = [cell for cell in self.cells if cell.winner]
        too_close = sum(cell.answer == FasterAnswer.TOO_CLOSE for cell in with_result)
        unmeasured = sum(cell.answer == FasterAnswer.NOT_MEASURED for cell in with_result)
        empty = len(self.cells) - len(with_result)
        return [
            *([f"{too_close} {'is' if too_close == 1 else 'are'} too close to call"] if too_close else []),
            *([f"{unmeasured} {'has' if unmeasured == 1 else 'have'} no significance test"] if unmeasured else []),
            *([f"{empty} {'has' if empty == 1 else 'have'} no result"] if empty else []),
        ]


def make_strategy_map(summary: RunSummary) -> StrategyMap | None:
    """Return the map of a run that compares several strategies over exactly two swept keys.

    Each key must have several values, and apply to all strategies. Return None for other runs, and if no trial
    finished. The fastest strategy of a cell has the least median time: to the target if any strategy reached it, else
    per sample. In each cell, the fastest strategy is compared with every other, paired by seed. The largest of these
    p-values is that of the claim that it is faster than all; it is adjusted for the number of cells (Holm).
    """
    trials = [trial for trial in summary.trials if not trial.baseline]
    keys = _find_map_keys(trials)
    groups = [group for group in summary.trial_groups if not group.is_baseline]
    if keys is None or not groups or len(summary.strategies) <= 1:
        return None
    metric = _choose_median_time_metric(groups)
    x_values, y_values = (tuple(dict.fromkeys(trial.labels[key] for trial in trials)) for key in keys)
    points = [dict(zip(keys, (x, y), strict=True)) for y in y_values for x in x_values]
    ranked = [
        _rank_by_median([group for group in groups if _has_swept_values(group.trials[0], point)], metric)
        for point in points
    ]
    rival_gaps = _compare_winners([cell if _has_result(cell, metric) else [] for cell in ranked])
    cells = tuple(
        _make_cell(summary, point, metric, groups, gaps)
        for point, groups, gaps in zip(points, ranked, rival_gaps, strict=True)
    )
    return StrategyMap(*keys, x_values, y_values, metric, summary.target, cells)


def median_time_s(group: TrialGroup, time_metric: TimeMetric) -> float:
    """Return the median time of the trials of a group; infinite if half of the trials missed the target."""
    return median_of_maybe_infinite(group.trial_times_s(time_metric))


def _find_map_keys(trials: Sequence[TrialResult]) -> tuple[str, str] | None:
    """Return the two swept keys of a run; None unless exactly two keys vary, and both in all strategies."""
    keys = dict.fromkeys(key for trial in trials for key in trial.labels)
    varying = [key for key in keys if len({trial.labels.get(key) for trial in trials}) > 1]
    if len(varying) != MAP_AXES or not all(key in trial.labels for trial in trials for key in varying):
        return None
    return varying[0], varying[1]


def _choose_median_time_metric(groups: Sequence[TrialGroup]) -> TimeMetric:
    reached = any(np.isfinite(median_time_s(group, "time_to_target")) for group in groups)
    return "time_to_target" if reached else "time_to_samples"


def _has_swept_values(trial: TrialResult, swept_values: dict[str, SweptValue]) -> bool:
    return swept_values.items() <= trial.labels.items()


def _rank_by_median(groups: Sequence[TrialGroup], time_metric: TimeMetric) -> list[TrialGroup]:
    return sorted(groups, key=lambda group: median_time_s(group, time_metric))


def _has_result(ranked: Sequence[TrialGroup], time_metric: TimeMetric) -> bool:
    return bool(ranked) and bool(np.isfinite(median_time_s(ranked[0], time_metric)))


def _compare_winners(cells: Sequence[Sequence[TrialGroup]]) -> list[tuple[StrategyTimeGap | None, ...]]:
    """Return the differences of the first group of each cell and every other group of the cell; None: not measured.

    All differences of a cell have the adjusted p-value of its weakest difference.
    """
    compared = compare_group_pairs((groups[0], rival) for groups in cells for rival in groups[1:])
    by_cell = [tuple(find_group_time_gap(groups[0], rival, compared) for rival in groups[1:]) for groups in cells]
    largest = [max((gap.comparison.p_value for gap in gaps if gap), default=None) for gaps in by_cell]
    adjusted = iter(holm_adjust(np.array([p_value for p_value in largest if p_value is not None])))
    return [
        gaps if p_value is None else _replace_p_values(gaps, float(next(adjusted)))
        for gaps, p_value in zip(by_cell, largest, strict=True)
    ]


def _replace_p_values(gaps: Sequence[StrategyTimeGap | None], p_adjusted: float) -> tuple[StrategyTimeGap | None, ...]:
    return tuple(replace(gap, p_adjusted=p_adjusted) if gap else None for gap in gaps)


def _make_cell(
    summary: RunSummary,
    point: dict[str, SweptValue],
    time_metric: TimeMetric,
    ranked: Sequence[TrialGroup],
    rival_gaps: tuple[StrategyTimeGap | None, ...],
) -> StrategyMapCell:
    x, y = point.values()
    reason = _explain_missing_result(summary, point, ranked, time_metric)
    if not _has_result(ranked, time_metric):
        return StrategyMapCell(x, y, time_metric, reason=reason)
    winner, runner_up = ranked[0], next(iter(ranked[1:]), None)
    return StrategyMapCell(x, y, time_metric, winner, runner_up, rival_gaps, reason)


def _explain_missing_result(
    summary: RunSummary, point: dict[str, SweptValue], ranked: Sequence[TrialGroup], time_metric: TimeMetric
) -> str:
    """Return why a cell, or a strategy in a cell, has no result; empty if all strategies have one."""
    trials = [trial for trial in summary.trials if not trial.baseline and _has_swept_values(trial, point)]
    if not trials:
        return _explain_missing_trials(summary, point)
    if not ranked:
        return f"no trial finished: {trials[0].status_reason or trials[0].status}"
    if not _has_result(ranked, time_metric):
        return f"no strategy reached {summary.target} in most of its trials"
    finished = {group.strategy for group in ranked}
    missing = [name for name in summary.strategies if name not in finished]
    return f"without {join_names(missing)}, of which no trial finished" if missing else ""


def _explain_missing_trials(summary: RunSummary, point: dict[str, SweptValue]) -> str:
    labels = summary.trials[-1].labels | point
    condition = describe_swept_values(swept_values_of_labels(labels))
    skipped = (
        trial.reason
        for trial in summary.skipped
        if (trial.condition, trial.workers) == (condition, labels.get(WORKERS_LABEL))
    )
    return next(skipped, "not run")
