"""Summary text of a run: sentences on fastest strategies, efficiency and missing trials.

The sentences give intervals and p-values. Ratios are of olympic means. Intervals are 95 % BCa intervals over the
repeats of both sides, paired by seed where both ran the same seeds (`analysis.statistics`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile

import numpy as np

from analysis.metrics.speedup import SpeedupCurve
from analysis.metrics.strategy_comparison import (
    StrategyTimeGap,
    compare_samples_needed,
    explain_unchecked_samples,
    find_group_time_gap,
)
from analysis.report.wording import capitalise_first_letter, format_number, format_percentage, format_worker_count
from analysis.results.excluded_trials import describe_excluded_trials
from analysis.results.summary import RunSummary
from analysis.results.trial_result import TIMES_SIGN, TimeMetric, TrialGroup, choose_time_metric, have_same_seeds
from analysis.statistics.intervals import Interval, ratio_interval
from analysis.statistics.convergence_check import SIGNIFICANCE_LEVEL

EXPECTED_EFFICIENCY = 0.6  # efficiency that platform engineers ask for
MIN_SHOWN_P_VALUE = 0.001  # smaller p-values are not shown: they depend on the tail of the assumed distribution
MAX_SENTENCES_PER_KIND = 6  # of winners, and of efficiencies


@dataclass(frozen=True)
class FastestStrategy:
    """Fastest strategy on one number of workers, and how much faster it is than the second fastest strategy."""

    workers: int
    winner: str
    time_ratio: float  # time of the second / time of the fastest; infinite where no other strategy reaches the target
    interval: Interval | None  # None where nothing was repeated
    difference: StrategyTimeGap | None  # between the two, paired by seed; None where they share fewer than two seeds
    shared_seeds: int  # number of seeds that both ran
    time_metric: TimeMetric

    @property
    def p_value_vs_second_fastest(self) -> float | None:
        """Holm-corrected p-value of the hypothesis that the two fastest strategies are equally fast.

        None if it is untested.
        """
        return self.difference.p_adjusted if self.difference else None

    @property
    def is_significant(self) -> bool:
        """Whether the fastest strategy is significantly faster than the second fastest.

        The interval cannot decide this: the pair was chosen because it lies far apart.
        """
        return self.p_value_vs_second_fastest is not None and self.p_value_vs_second_fastest < SIGNIFICANCE_LEVEL


def summary_sentences(summary: RunSummary) -> list[str]:
    """Return the sentences of a run's summary: the fastest strategies, their efficiencies, and excluded trials."""
    fastest = {condition: find_fastest_strategies(summary, condition) for condition in summary.swept_values}
    winners = [_describe_fastest_strategies(*each, summary.target) for each in fastest.items()]
    falls = [describe_efficiency_drop(curve, summary.target) for curve in summary.curves if len(curve.points) > 1]
    sentences = [
        *list(filter(None, winners))[:MAX_SENTENCES_PER_KIND],
        *list(filter(None, falls))[:MAX_SENTENCES_PER_KIND],
        _describe_time_gaps(summary),
        _fast_convergence_warning(summary),
        _describe_missing_baselines(summary),
        *describe_excluded_trials(summary),
    ]
    return [capitalise_first_letter(sentence) for sentence in sentences if sentence]


def find_fastest_strategies(summary: RunSummary, swept_values: str) -> list[FastestStrategy]:
    """Return the fastest strategy for each number of workers.

    Only numbers of workers that at least two strategies ran on are included.
    """
    members = [group for group in summary.trial_groups if group.condition == swept_values and not group.is_baseline]
    members.sort(key=lambda group: group.workers)
    by_size = [list(groups) for _, groups in groupby(members, key=lambda group: group.workers)]
    candidates = (_find_fastest_strategy(groups, summary.strategy_time_gaps) for groups in by_size if len(groups) > 1)
    return [fastest for fastest in candidates if fastest is not None]


def describe_efficiency_drop(speedup_curve: SpeedupCurve, quality_target: str | None = None) -> str:
    """Describe from how many workers on the efficiency of a strategy is below EXPECTED_EFFICIENCY.

    Only measured numbers of workers are named; the efficiency between two of them is not interpolated.
    """
    name = f"{speedup_curve.description}{_describe_time_fallback(speedup_curve.of, quality_target)}"
    sufficient = list(takewhile(lambda point: point.efficiency >= EXPECTED_EFFICIENCY, speedup_curve.points))
    if len(sufficient) == len(speedup_curve.points):
        last = speedup_curve.points[-1]
        return f"{name} keeps {format_percentage(last.efficiency)} efficiency up to {format_worker_count(last.workers)}"
    first_below = speedup_curve.points[len(sufficient)]
    threshold, workers = format_percentage(EXPECTED_EFFICIENCY), format_worker_count(first_below.workers)
    interval = _format_efficiency_interval(first_below.speedup_ci, first_below.workers / speedup_curve.base.workers)
    before = ""
    if sufficient:
        before = f" (on {sufficient[-1].workers} it is {format_percentage(sufficient[-1].efficiency)})"
    fall = f"{name}: efficiency falls below {threshold} at {workers}"
    return f"{fall}, to {format_percentage(first_below.efficiency)}{interval}{before}"


def _find_fastest_strategy(
    trial_groups: Sequence[TrialGroup], strategy_time_gaps: Sequence[StrategyTimeGap]
) -> FastestStrategy | None:
    """Return the fastest strategy among groups of trials on the same number of workers.

    Return None if a compared time is zero or unknown.
    """
    time_metric = choose_time_metric(trial_groups)
    fastest, second = sorted(trial_groups, key=lambda group: group.mean_time_s(time_metric))[:2]
    fastest_times, second_times = fastest.trial_times_s(time_metric), second.trial_times_s(time_metric)
    fastest_s, second_s = fastest.mean_time_s(time_metric), second.mean_time_s(time_metric)
    if not np.isfinite(fastest_s) or not (fastest_times > 0).all() or not (second_times > 0).all():
        return None
    return FastestStrategy(
        workers=fastest.workers,
        winner=fastest.strategy,
        time_ratio=second_s / fastest_s,
        interval=ratio_interval(second_times, fastest_times, paired=have_same_seeds((fastest, second))),
        difference=find_group_time_gap(fastest, second, strategy_time_gaps),
        shared_seeds=len(fastest.seeds & second.seeds),
        time_metric=time_metric,
    )


def _describe_fastest_strategies(
    swept_values: str, fastest_strategies: Sequence[FastestStrategy], quality_target: str | None
) -> str:
    """Describe which strategy is fastest on which numbers of workers.

    The text also says by how much on the most workers. For example: "ring wins from 4 workers on, by 1.40× [1.30, 1.50]
    (p = 0.003) on 16; ps wins up to 2 workers". A strategy "wins" where it differs significantly from the second;
    otherwise it "is fastest", and the reason follows.
    """
    if not fastest_strategies:
        return ""
    last = fastest_strategies[-1]
    winning = [*takewhile(lambda one: one.winner == last.winner and one.is_significant, reversed(fastest_strategies))]
    earlier = fastest_strategies[: len(fastest_strategies) - len(winning)]
    earlier_winners = {one.winner: one.workers for one in earlier if one.is_significant}
    up_to = "".join(
        f"; {name} wins up to {format_worker_count(workers)}"
        for name, workers in earlier_winners.items()
        if name != last.winner
    )
    where = f" ({swept_values})" if swept_values else ""
    time_metric = _describe_time_fallback(last.time_metric, quality_target)
    margin = f"{_describe_winning_factor(last)}{_format_p_value(last.difference)}{time_metric}"
    if not winning:
        workers = format_worker_count(last.workers)
        return f"{last.winner} is fastest on {workers}{where}, {margin}; {_explain_no_significance(last)}{up_to}"
    if len(winning) == 1:
        return f"{last.winner} wins on {format_worker_count(last.workers)}{where}, {margin}{up_to}"
    first_workers = format_worker_count(winning[-1].workers)
    return f"{last.winner} wins from {first_workers} on{where}, {margin} on {last.workers}{up_to}"


def _describe_winning_factor(fastest_strategy: FastestStrategy) -> str:
    """Describe by which factor the fastest strategy beats the second fastest strategy.

    If no other strategy reaches the target, the text says so.
    """
    if not np.isfinite(fastest_strategy.time_ratio):
        return "as no other reaches the target"
    return f"by {format_number(fastest_strategy.time_ratio)}{TIMES_SIGN}{_format_interval(fastest_strategy.interval)}"


def _describe_time_fallback(time_metric: TimeMetric, quality_target: str | None) -> str:
    """Return a note if times per sample are compared although the run has a training target.

    Otherwise, the text is empty.
    """
    return " by time for the same samples" if quality_target and time_metric == "time_to_samples" else ""


def _explain_no_significance(fastest_strategy: FastestStrategy) -> str:
    """Return why the fastest strategy does not count as significantly faster than the second."""
    if fastest_strategy.interval is None:
        return "each ran once: no interval"
    if fastest_strategy.difference is None:
        return "one shared seed: no test" if fastest_strategy.shared_seeds else "no shared seeds: no test"
    return "repeats do not differ significantly from the next strategy's"


def _format_p_value(strategy_time_gap: StrategyTimeGap | None) -> str:
    """Return the p-value of a comparison of two strategies as text.

    The number of shared seeds is added if not all repeats are paired.
    """
    if strategy_time_gap is None:
        return ""
    seeds = f" over {strategy_time_gap.comparison.pairs} shared seeds" if strategy_time_gap.has_unpaired_repeats else ""
    p_value = strategy_time_gap.p_adjusted
    return f" (p = {p_value:.2g}{seeds})" if p_value >= MIN_SHOWN_P_VALUE else f" (p < {MIN_SHOWN_P_VALUE:g}{seeds})"


def _format_interval(interval: Interval | None) -> str:
    return f" [{format_number(interval[0])}, {format_number(interval[1])}]" if interval else ""


def _format_efficiency_interval(speedup_interval: Interval | None, worker_count_ratio: float) -> str:
    if not speedup_interval:
        return ""
    low, high = (format_percentage(end / worker_count_ratio) for end in speedup_interval)
    return f" [{low}, {high}]"


def _describe_time_gaps(summary: RunSummary) -> str:
    """Return how many pairs of strategies differ significantly in time (Holm's correction).

    The result is empty without repeats.
    """
    differences = summary.strategy_time_gaps
    if not differences:
        return ""
    significant = sum(difference.p_adjusted < SIGNIFICANCE_LEVEL for difference in differences)
    pairs = f"{significant} of {len(differences)} pair{'s' * (len(differences) > 1)} of strategies"
    partial = sum(difference.has_unpaired_repeats for difference in differences)
    partial_text = f", {partial} over the seeds that both ran" if partial else ""
    verb = "differ" if len(differences) > 1 else "differs"
    return f"{pairs} {verb} significantly (p < {SIGNIFICANCE_LEVEL:g}, paired by seed{partial_text}, Holm)"


def _fast_convergence_warning(summary: RunSummary) -> str:
    """Name the strategies that need suspiciously few samples to reach the target.

    The strategies are compared with one worker alone. Suspiciously few samples hint at a bug.
    """
    names = [name for name, check in compare_samples_needed(summary.trial_groups).items() if check.converges_too_fast]
    if not names:
        return ""
    need = "needs" if len(names) == 1 else "need"
    return f"{', '.join(names)} {need} significantly fewer samples than one worker alone (Holm): check for a bug"


def _describe_missing_baselines(summary: RunSummary) -> str:
    """Return why some strategies' samples to target could not be compared with those of one worker alone."""
    reason = explain_unchecked_samples(summary.trial_groups)
    some = " for some strategies" if compare_samples_needed(summary.trial_groups) else ""
    return f"samples to target not compared with a baseline{some}: {reason}" if reason else ""
