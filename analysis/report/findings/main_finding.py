"""Main finding of a run: the first sentence of the report on the run.

The settings that the scenario varied determine which finding is chosen. Each finding is a function of the summary of a
run. It returns a sentence, or an empty string where the finding does not apply to the run. The first function of
`FINDING_FUNCTIONS` that returns a sentence gives the main finding. If no function does, the fastest strategy is
reported instead (`analysis.report.headline`).
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from analysis.metrics.speedup import SpeedupCurve
from analysis.metrics.strategy_changes.strategy_switch import find_median_saving_switch
from analysis.metrics.strategy_changes.strategy_switch_text import (
    describe_reported_repeat,
    describe_strategy_switch,
    describe_switch_outcomes,
)
from analysis.report.fastest import MAX_LISTED, TIE_RATIO, format_missed_repeats
from analysis.report.findings.balance_finding import load_balancing_finding
from analysis.report.findings.equal_accuracy import ACCURACY_METRIC, equal_accuracy_finding
from analysis.report.findings.goodput_finding import goodput_finding
from analysis.report.findings.scaling_findings import (
    MIN_CURVE_POINTS,
    efficiency_vs_one_worker_finding,
    gain_of_more_workers_finding,
    scaling_efficiency_finding,
    step_time_growth_finding,
)
from analysis.report.findings.switch_phases import describe_switch_vs_phases
from analysis.report.wording import (
    format_interval,
    format_number,
    format_percentage,
    format_worker_count,
    join_names,
)
from analysis.results.comparable_groups import choose_time_metric
from analysis.results.strategy_map import make_strategy_map
from analysis.results.summary import RunSummary
from analysis.results.swept_values import groups_by_swept_values, omit_repeated_keys, seconds_per_sample
from analysis.results.trial_group import TimeMetric, TrialGroup
from analysis.statistics.intervals import confidence_interval

LOSS_METRIC = "loss"  # beside the accuracy, a metric of models that classify

FindingFunction = Callable[[RunSummary], str]


def describe_main_finding(summary: RunSummary) -> str:
    """Return the main finding of a run as a sentence without full stop.

    The result is empty where no kind of finding applies.
    """
    return next((sentence for finding in FINDING_FUNCTIONS if (sentence := finding(summary))), "")


def strategy_switch_finding(summary: RunSummary) -> str:
    """Return a sentence on whether a switch between strategies saved time.

    The sentence also says how long each strategy takes. Applies to at most MAX_LISTED strategies with one combination
    of swept values. Of more strategies, only the fastest is reported.
    """
    switched = [group for group in summary.trial_groups if any(trial.switch for trial in group.trials)]
    if not switched or len(summary.swept_values) > 1 or len(summary.strategies) > MAX_LISTED:
        return ""
    largest = max(reversed(switched), key=lambda group: group.workers)  # the last one of equally large groups
    rivals = [group for group in summary.trial_groups if group.workers == largest.workers and not group.is_baseline]
    return "; ".join(
        filter(None, [switch_outcome_sentence(summary, largest), _describe_training_times(rivals, summary.target)])
    )


def time_to_target_finding(summary: RunSummary) -> str:
    """Return a sentence on the time to the training target for each combination of swept values.

    Applies to one strategy with three combinations or more, with a target that one of them reached.
    """
    by_strategy = groups_by_swept_values(summary)
    if not summary.target or len(by_strategy) != 1:
        return ""
    groups = by_strategy[0]
    if len(groups) < MIN_CURVE_POINTS or not any(group.has_reached_target for group in groups):
        return ""
    conditions = omit_repeated_keys(group.condition for group in groups)
    parts = [
        f"{_describe_mean_time(group, 'time_to_target')} with {condition}"
        for condition, group in zip(conditions, groups, strict=True)
    ]
    return f"to reach {summary.target}, {groups[0].strategy} {', '.join(parts)}"


def final_metric_finding(summary: RunSummary) -> str:
    """Return a sentence on how many trials reach the training target.

    The sentence also gives the range of the final metric of the trials. Applies to several strategies with one
    combination of swept values, with a target that is neither accuracy nor loss.
    """
    metric = (summary.target or ACCURACY_METRIC).split()[0]
    if metric in (ACCURACY_METRIC, LOSS_METRIC) or len(summary.strategies) == 1 or len(summary.swept_values) > 1:
        return ""
    trials = [trial for trial in summary.trials if trial.is_finished and metric in trial.final]
    if not trials:
        return ""
    reached = sum(trial.time_to_target_s is not None for trial in trials)
    finals = [trial.final[metric] for trial in trials]
    spread = f"they end at {metric} {format_number(min(finals))} to {format_number(max(finals))}"
    return f"{reached} of {len(trials)} trials reach {summary.target}; {spread}"


def predicted_speedup_finding(summary: RunSummary) -> str:
    """Return a sentence on measured and predicted speedup.

    Applies to scenarios that quote published speedups in samples per second.
    """
    predicted = [curve for curve in summary.curves if curve.has_predictions]
    return describe_predicted_speedups(predicted) if summary.published_speeds and predicted else ""


def fastest_strategies_finding(summary: RunSummary) -> str:
    """Return a sentence on the strategies that are (almost) the fastest in all cases.

    A case is a combination of swept values and a number of workers. Almost means within TIE_RATIO. Applies to several
    strategies with several combinations of swept values on several numbers of workers.
    """
    members = [group for group in summary.trial_groups if not group.is_baseline]
    by_case = {(group.condition, group.workers): list[TrialGroup]() for group in members}
    for group in members:
        by_case[group.condition, group.workers].append(group)
    cases = [groups for groups in by_case.values() if len(groups) > 1]
    if len({group.workers for group in members}) <= 1 or len(summary.swept_values) == 1 or len(cases) < len(by_case):
        return ""
    if not all(seconds_per_sample(group) for group in members):
        return ""  # a trial that took no time has no ratio
    fastest_everywhere = set.intersection(*(_strategies_near_fastest(groups) for groups in cases))
    names = [name for name in summary.strategies if name in fastest_everywhere]
    subject = f"the mean time{'s' * (len(names) > 1)} of {join_names(names) or 'no strategy'}"
    verb = "are" if len(names) > 1 else "is"
    slowest = max((_find_slowest_group(groups) for groups in cases), key=lambda group_and_ratio: group_and_ratio[1])
    within = f"within {format_percentage(TIE_RATIO - 1)} of the fastest in all {len(cases)} cases"
    return f"{subject} {verb} {within}; {_describe_slowest_trial_group(slowest)}"


def strategy_map_finding(summary: RunSummary) -> str:
    """Return a sentence on the fastest strategy for each combination of the values of two swept keys.

    Applies to several strategies with exactly two swept keys, if a test compares two anywhere.
    """
    strategy_map = make_strategy_map(summary)
    is_compared = strategy_map is not None and any(cell.time_gap for cell in strategy_map.cells)
    return strategy_map.finding if strategy_map and is_compared else ""


def finished_trials_finding(summary: RunSummary) -> str:
    """Return a sentence on how many trials of the run finished.

    Applies to runs of several strategies that vary nothing else and have neither a target nor a baseline.
    """
    is_varied = len(summary.swept_values) > 1 or len({trial.workers for trial in summary.trials}) > 1
    if is_varied or summary.target or any(trial.baseline for trial in summary.trials) or len(summary.strategies) == 1:
        return ""
    finished = [trial for trial in summary.trials if trial.is_finished]
    if len(finished) < len(summary.trials) or summary.not_run or summary.skipped or summary.damage:
        planned = len(summary.trials) + len(summary.not_run) + len(summary.skipped)
        return f"{len(finished)} of {planned} trials finished"
    return f"all {len(finished)} trials finished: {join_names(summary.strategies)}"


FINDING_FUNCTIONS: tuple[FindingFunction, ...] = (
    goodput_finding,
    strategy_switch_finding,
    load_balancing_finding,
    equal_accuracy_finding,
    time_to_target_finding,
    final_metric_finding,
    predicted_speedup_finding,
    scaling_efficiency_finding,
    fastest_strategies_finding,
    strategy_map_finding,
    step_time_growth_finding,
    gain_of_more_workers_finding,
    efficiency_vs_one_worker_finding,
    finished_trials_finding,
)


def switch_outcome_sentence(summary: RunSummary, group: TrialGroup) -> str:
    """Return a sentence on whether a strategy switch took place and saved time.

    The sentence describes the repeat that saved the median time. It also compares the switching strategy with its two
    strategies alone, if the run has them.
    """
    switches = [trial.switch for trial in group.trials if trial.switch]
    repeats = "; ".join(filter(None, (describe_reported_repeat(switches), describe_switch_outcomes(switches))))
    median_switch = find_median_saving_switch(switches)
    outcome = f"{group.description}: {describe_strategy_switch(median_switch, group.workers)} ({repeats})"
    return "; ".join(filter(None, (outcome, describe_switch_vs_phases(summary, group))))


def describe_predicted_speedups(speedup_curves: Sequence[SpeedupCurve]) -> str:
    """Describe the measured and the predicted speedup of two strategies.

    These are the fastest strategy and the strategy with the worst prediction. For example: "ring on 16 workers: 9.13
    times the samples per second of one worker alone, the closed form predicts 9.40".
    """
    largest = max(speedup_curves, key=lambda curve: curve.points[-1].rate_speedup)
    worst_predicted = max(speedup_curves, key=_find_misprediction_factor)
    shown = [largest] if largest is worst_predicted else [largest, worst_predicted]
    return "; ".join(_describe_vs_prediction(curve) for curve in shown)


def _describe_vs_prediction(speedup_curve: SpeedupCurve) -> str:
    """Return a part of a sentence on the measured and predicted speedup of a strategy.

    Both speedups are on the strategy's largest number of workers.
    """
    last = speedup_curve.points[-1]
    measured, predicted = format_number(last.rate_speedup), format_number(last.predicted_speedup)
    where = f"{speedup_curve.description} on {format_worker_count(last.workers)}"
    speedup = f"{measured} times the samples per second of {speedup_curve.base_description}"
    return f"{where}: {speedup}, the closed form predicts {predicted}"


def _find_misprediction_factor(speedup_curve: SpeedupCurve) -> float:
    """Return the factor (at least 1) by which predicted and measured speedup differ on the most workers."""
    ratio = speedup_curve.points[-1].rate_speedup / (speedup_curve.points[-1].predicted_speedup or np.nan)
    return float(max(ratio, 1 / ratio))


def _describe_training_times(trial_groups: Sequence[TrialGroup], quality_target: str | None) -> str:
    """Describe the training time of each strategy, the fastest strategy first.

    Strategies that missed the target come last.
    """
    if len(trial_groups) == 1:
        return ""
    time_metric = choose_time_metric(trial_groups)
    ranked = sorted(trial_groups, key=lambda group: group.mean_time_s(time_metric))
    task, factor = (
        (f"to reach {quality_target}", 1.0) if time_metric == "time_to_target" else ("for 1,000 samples", 1e3)
    )
    durations = (f"{group.strategy} {_describe_mean_time(group, time_metric, factor)}" for group in ranked)
    return f"{task}, {', '.join(durations)}"


def _describe_mean_time(group: TrialGroup, time_metric: TimeMetric, factor: float = 1.0) -> str:
    """Return how long a group takes, with an interval if it ran repeatedly, or how many repeats missed the target."""
    if time_metric == "time_to_target" and any(trial.time_to_target_s is None for trial in group.trials):
        return f"misses the target{format_missed_repeats(group)}"
    times_s = factor * group.trial_times_s(time_metric)
    interval = confidence_interval(times_s, factor * group.time_rounding_s(time_metric))
    return f"takes {format_number(factor * group.mean_time_s(time_metric))} s{format_interval(interval)}"


def _strategies_near_fastest(trial_groups: Sequence[TrialGroup]) -> set[str]:
    """Return the strategies that are nearly as fast as the fastest group of trials.

    Their time is at most TIE_RATIO times the time of the fastest group.
    """
    time_metric = choose_time_metric(trial_groups)
    fastest_s = min(group.mean_time_s(time_metric) for group in trial_groups)
    return {group.strategy for group in trial_groups if group.mean_time_s(time_metric) <= TIE_RATIO * fastest_s}


def _find_slowest_group(trial_groups: Sequence[TrialGroup]) -> tuple[TrialGroup, float]:
    """Return the slowest group of trials, and the ratio of the slowest to the fastest time."""
    time_metric = choose_time_metric(trial_groups)
    ranked = sorted(trial_groups, key=lambda group: group.mean_time_s(time_metric))
    slowest_s, fastest_s = ranked[-1].mean_time_s(time_metric), ranked[0].mean_time_s(time_metric)
    return ranked[-1], slowest_s / fastest_s if fastest_s else np.nan


def _describe_slowest_trial_group(group_and_slowdown: tuple[TrialGroup, float]) -> str:
    group, ratio = group_and_slowdown
    if not np.isfinite(ratio):
        return f"{group.description} {_describe_mean_time(group, 'time_to_target')}"
    return f"{group.description} takes {format_number(ratio)} times as long as the fastest there"


def is_new_sentence(sentence: str, earlier_sentences: Iterable[str]) -> bool:
    """Return whether a sentence is neither empty nor contained in an earlier sentence of the report."""
    text = sentence.rstrip(".").lower()
    return bool(text) and not any(text in earlier.lower() for earlier in earlier_sentences)
