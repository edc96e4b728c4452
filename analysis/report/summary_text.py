"""Summary text of a run: sentences on the fastest strategy by number of workers, and on missing trials.

The table of strategies (`analysis.report.tables.strategy_table`) has the numbers of all strategies, with intervals.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile

import numpy as np

from analysis.metrics.comparisons.strategy_comparison import (
    StrategyTimeGap,
    compare_samples_needed,
    explain_unchecked_samples,
    find_group_time_gap,
)
from analysis.report.fastest import format_missed_repeats, is_too_close
from analysis.report.findings.crossing_finding import describe_rate_crossings
from analysis.report.findings.goodput_finding import describe_goodput
from analysis.report.findings.utilisation_finding import describe_needed_rates
from analysis.report.tables.reference_table import reference_warning
from analysis.report.wording import (
    TIMES_SIGN,
    capitalise_first_letter,
    describe_compressed_traffic,
    format_interval,
    format_number,
    format_worker_count,
    join_names,
)
from analysis.results.comparable_groups import choose_time_metric
from analysis.results.excluded_trials import describe_excluded_trials
from analysis.results.summary import RunSummary
from analysis.results.trial_group import TimeMetric, TrialGroup

MIN_SHOWN_P_VALUE = 0.001  # smaller p-values are not shown: they depend on the tail of the assumed distribution
MAX_WINNER_SENTENCES = 6
SAMPLES_ARE_STEPS = (
    "samples are steps of one worker, because workload.batch_per_worker is 1 (the default); declare it to count the "
    "samples of the command"
)


@dataclass(frozen=True)
class FastestStrategy:
    """Fastest strategy on one number of workers, and how much faster it is than the second fastest strategy."""

    winner_group: TrialGroup
    second_group: TrialGroup
    difference: StrategyTimeGap | None  # between the two, paired by seed; None where they share fewer than two seeds
    time_metric: TimeMetric

    @property
    def workers(self) -> int:
        """Number of workers that both strategies ran on."""
        return self.winner_group.workers

    @property
    def winner(self) -> str:
        """Label of the fastest strategy."""
        return self.winner_group.strategy

    @property
    def time_ratio(self) -> float:
        """Time of the second / time of the fastest strategy, over the seeds that both ran if there are two or more.

        Infinite where no other strategy reaches the target.
        """
        if self.difference:
            return self.difference.comparison.ratio
        return self.second_group.mean_time_s(self.time_metric) / self.winner_group.mean_time_s(self.time_metric)

    @property
    def is_significant(self) -> bool:
        """Whether the fastest strategy is significantly faster than the second fastest.

        The interval cannot decide this: the pair was chosen because it lies far apart.
        """
        return self.difference is not None and self.difference.is_significant


def summary_sentences(summary: RunSummary) -> list[str]:
    """Return the sentences of a run's summary: the fastest strategies, suspicious results, and excluded trials."""
    fastest = {condition: find_fastest_strategies(summary, condition) for condition in summary.swept_values}
    winners = [_describe_fastest_strategies(*each, summary.target) for each in fastest.items()]
    sentences = [
        *list(filter(None, winners))[:MAX_WINNER_SENTENCES],
        SAMPLES_ARE_STEPS if summary.samples_are_steps else "",
        _fast_convergence_warning(summary),
        reference_warning(summary),
        *_describe_useless_compression(summary),
        *describe_rate_crossings(summary),
        describe_needed_rates(summary),
        *describe_goodput(summary),
        _describe_missing_baselines(summary),
        *describe_excluded_trials(summary),
    ]
    return [capitalise_first_letter(sentence) for sentence in sentences if sentence]


def _describe_useless_compression(summary: RunSummary) -> list[str]:
    """Return sentences on strategies whose compressed all-reduce saves no bytes, compared with an uncompressed ring."""
    useless = [traffic for traffic in summary.compressed_traffic if traffic.ratio >= 1]
    return [describe_compressed_traffic(traffic.strategy, traffic.workers, traffic.ratio) for traffic in useless]


def find_fastest_strategies(summary: RunSummary, swept_values: str) -> list[FastestStrategy]:
    """Return the fastest strategy for each number of workers.

    Only numbers of workers that at least two strategies ran on are included.
    """
    members = [group for group in summary.trial_groups if group.condition == swept_values and not group.is_baseline]
    members.sort(key=lambda group: group.workers)
    by_size = [list(groups) for _, groups in groupby(members, key=lambda group: group.workers)]
    candidates = (_find_fastest_strategy(groups, summary.strategy_time_gaps) for groups in by_size if len(groups) > 1)
    return [fastest for fastest in candidates if fastest is not None]


def _find_fastest_strategy(
    trial_groups: Sequence[TrialGroup], strategy_time_gaps: Sequence[StrategyTimeGap]
) -> FastestStrategy | None:
    """Return the fastest strategy among groups of trials on the same number of workers.

    Return None if a compared time is zero or unknown.
    """
    time_metric = choose_time_metric(trial_groups)
    fastest, second = sorted(trial_groups, key=lambda group: group.mean_time_s(time_metric))[:2]
    fastest_times, second_times = fastest.trial_times_s(time_metric), second.trial_times_s(time_metric)
    if (
        not np.isfinite(fastest.mean_time_s(time_metric))
        or not (fastest_times > 0).all()
        or not (second_times > 0).all()
    ):
        return None
    return FastestStrategy(fastest, second, find_group_time_gap(fastest, second, strategy_time_gaps), time_metric)


def _describe_fastest_strategies(
    swept_values: str, fastest_strategies: Sequence[FastestStrategy], quality_target: str | None
) -> str:
    """Describe which strategy is fastest on which numbers of workers.

    The text also says by how much on the most workers. For example: "ring wins from 4 workers on, by 1.40× [1.30, 1.50]
    (p = 0.003) on 16; ps wins on 1 and 2 workers". A strategy "wins" where it differs significantly from the second;
    otherwise the reason follows, such as "too close to call".
    """
    if not fastest_strategies:
        return ""
    last = fastest_strategies[-1]
    winning = [*takewhile(lambda one: one.winner == last.winner and one.is_significant, reversed(fastest_strategies))]
    earlier = _describe_earlier_winners(fastest_strategies[: len(fastest_strategies) - len(winning)])
    where = f" ({swept_values})" if swept_values else ""
    time_metric = _describe_time_fallback(last.time_metric, quality_target)
    margin = f"{_describe_winning_factor(last)}{_format_p_value(last.difference)}{time_metric}"
    if not winning:
        return f"{_describe_unproven_winner(last, where, margin)}{earlier}"
    if len(winning) == 1:
        return f"{last.winner} wins on {format_worker_count(last.workers)}{where}, {margin}{earlier}"
    first_workers = format_worker_count(winning[-1].workers)
    return f"{last.winner} wins from {first_workers} on{where}, {margin} on {last.workers}{earlier}"


def _describe_unproven_winner(last: FastestStrategy, where: str, margin: str) -> str:
    """Describe a comparison on the most workers that is too close to call, or whose significance is not measured."""
    workers = format_worker_count(last.workers)
    if is_too_close(last.winner_group, last.second_group, last.time_metric, last.difference):
        names = f"{last.winner} and {last.second_group.strategy}"
        ahead = f"{last.winner} is ahead {margin}"
        if format_number(last.time_ratio) == "1.00":  # neither is ahead
            ahead = f"the ratio of their times is {margin.removeprefix('by ')}"
        return f"on {workers}{where}, {names} are too close to call: {ahead}"
    return f"{last.winner} is fastest on {workers}{where}, {margin}; {_explain_no_significance(last)}"


def _explain_no_significance(fastest: FastestStrategy) -> str:
    """Return why the fastest strategy does not count as significantly faster, though its time is not too close."""
    if fastest.difference:
        return "not significant"
    if len(fastest.winner_group.trials) == len(fastest.second_group.trials) == 1:
        return "significance not measured: each ran once"
    shared_seeds = fastest.winner_group.seeds & fastest.second_group.seeds
    return f"significance not measured: {'one shared seed' if shared_seeds else 'no shared seeds'}"


def _describe_earlier_winners(fastest_strategies: Sequence[FastestStrategy]) -> str:
    """Return which strategies win on which smaller numbers of workers; only these numbers are named."""
    workers_by_winner: dict[str, list[str]] = {}
    for each in fastest_strategies:
        if each.is_significant:
            workers_by_winner.setdefault(each.winner, []).append(str(each.workers))
    parts = (
        f"; {name} wins on {join_names(workers)} worker{'s' * (workers != ['1'])}"
        for name, workers in workers_by_winner.items()
    )
    return "".join(parts)


def _describe_winning_factor(fastest_strategy: FastestStrategy) -> str:
    """Describe by which factor the fastest strategy beats the second fastest strategy.

    If the mean time of the second is infinite, the text says how many of its repeats missed the target.
    """
    if np.isfinite(fastest_strategy.time_ratio):
        gap = fastest_strategy.difference
        interval = format_interval(gap.comparison.interval) if gap else ""
        return f"by {format_number(fastest_strategy.time_ratio)}{TIMES_SIGN}{interval}"
    second = fastest_strategy.second_group
    return f"as the second fastest, {second.strategy}, missed the target{format_missed_repeats(second)}"


def _describe_time_fallback(time_metric: TimeMetric, quality_target: str | None) -> str:
    """Return a note if times per sample are compared although the run has a training target.

    Otherwise, the text is empty.
    """
    return " by time for the same samples" if quality_target and time_metric == "time_to_samples" else ""


def _format_p_value(strategy_time_gap: StrategyTimeGap | None) -> str:
    """Return the p-value of a comparison of two strategies as text.

    The number of shared seeds is added if not all repeats are paired.
    """
    if strategy_time_gap is None:
        return ""
    seeds = f" over {strategy_time_gap.comparison.pairs} shared seeds" if strategy_time_gap.has_unpaired_repeats else ""
    p_value = strategy_time_gap.p_adjusted
    return f" (p = {p_value:.2g}{seeds})" if p_value >= MIN_SHOWN_P_VALUE else f" (p < {MIN_SHOWN_P_VALUE:g}{seeds})"


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
