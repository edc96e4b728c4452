"""Headline of a report: sentences that state which strategy wins, on how many workers, and why.

The main finding (`analysis.report.findings.main_finding`) comes first, then the winner and the causes. Without a main
finding, the effects of the swept conditions come first, then the growth where one strategy runs on many workers, else
the winner.
"""

import math

from analysis.checks.verdict import VerdictLevel, worst_level
from analysis.metrics.comparisons.quality_comparison import find_quality_gap
from analysis.metrics.speedup import SpeedupPoint
from analysis.report.causes import describe_winner_causes
from analysis.report.fastest import TwoFastestStrategies, compare_fastest_group, compare_winner_with_rival
from analysis.report.findings import main_finding
from analysis.report.findings.scaling_findings import describe_gain_of_more_workers, describe_step_time_growth
from analysis.report.wording import capitalise_first_letter, format_number, format_worker_count, join_names
from analysis.results.excluded_trials import count_planned_trials, count_unreadable_trials
from analysis.results.summary import RunSummary
from analysis.results.swept_values import compute_sweep_slowdowns, describe_sweep_slowdown, groups_by_swept_values
from services.scenario.published_curves import PublishedCurve

MAX_FEW_REPEATS = 3


def headline_sentences(summary: RunSummary) -> list[str]:
    """Return the headline sentences of a report: main finding, fastest strategy, causes, and reliability."""
    comparison = compare_winner_with_rival(summary)
    if comparison is None:
        return [_explain_missing_comparison(summary)]
    candidates = [
        main_finding.describe_main_finding(summary),
        *_make_winner_sentences(summary, comparison),
        *_strategy_switch_sentences(summary),
    ]
    predicted = [curve for curve in summary.curves if curve.has_predictions]
    candidates += [main_finding.describe_predicted_speedups(predicted)] if predicted else []
    candidates += [_published_speedup_sentence(curve, summary) for curve in summary.published_speeds]
    candidates += [_published_time_sentence(curve, summary) for curve in summary.published_times_to_target]
    sentences = [
        text for index, text in enumerate(candidates) if main_finding.is_new_sentence(text, candidates[:index])
    ]
    if quality_gap := find_quality_gap(summary.trial_groups):
        sentences[0] = f"{sentences[0]}; {quality_gap.description}"
    if unreadable_count := count_unreadable_trials(summary):  # the winner may be among the unreadable trials
        sentences[0] = f"with {unreadable_count} of {count_planned_trials(summary)} trials unreadable, {sentences[0]}"
    sentences += [_partition_sentence(summary), _run_reliability_sentence(summary)]
    return [f"{capitalise_first_letter(sentence).removesuffix('.')}." for sentence in sentences if sentence]


def _explain_missing_comparison(summary: RunSummary) -> str:
    """Return why no two strategies can be compared: no trial finished, or none with measured steps."""
    if any(trial.status in ("success", "missed_target") for trial in summary.trials):
        return "No finished trial has measured steps, so there is nothing to compare."
    return "No trial finished, so there is nothing to compare."


def _make_winner_sentences(summary: RunSummary, fastest_pair: TwoFastestStrategies) -> list[str]:
    """Return sentences that say which strategy is fastest, why, and what the swept values change.

    The most relevant sentence is the first.
    """
    winner_sentence = f"{_describe_missed_target(summary, fastest_pair)}{fastest_pair.description}"
    if describe_sweep_slowdown(summary):
        worst = _find_two_fastest_at_slowest_sweep(summary)
        return [
            _describe_sweep_effect(summary, worst),
            describe_winner_causes(summary, worst or fastest_pair),
            winner_sentence,
        ]
    cause = describe_winner_causes(summary, fastest_pair)
    if len(summary.strategies) == 1 and len(summary.curves) == 1:
        return [describe_gain_of_more_workers(summary.curves[0]), winner_sentence, cause]
    return [winner_sentence, describe_step_time_growth(summary, fastest_pair.winner.condition), cause]


def _describe_missed_target(summary: RunSummary, fastest_pair: TwoFastestStrategies) -> str:
    """Return a clause on how many runs missed the target, where times per sample are compared for that reason."""
    if not fastest_pair.target or fastest_pair.time_metric == "time_to_target":
        return ""
    trials = [trial for group in summary.trial_groups for trial in group.trials]
    missed = sum(trial.time_to_target_s is None for trial in trials)
    return f"{missed} of {len(trials)} runs missed {fastest_pair.target}; "


def _strategy_switch_sentences(summary: RunSummary) -> list[str]:
    """Return one sentence for each strategy that switches to another strategy.

    The sentence says whether the switch took place and saved time on the strategy's largest number of workers.
    """
    by_size = sorted(summary.trial_groups, key=lambda group: group.workers)
    largest = {group.strategy: group for group in by_size}  # the last group of a strategy has the most workers
    groups = (group for group in largest.values() if any(trial.switch for trial in group.trials))
    return [main_finding.switch_outcome_sentence(summary, group) for group in groups]


def _find_two_fastest_at_slowest_sweep(summary: RunSummary) -> TwoFastestStrategies | None:
    """Compare the two fastest strategies under the swept values that make training slowest.

    Return None if only one strategy ran with these values.
    """
    worst_effect = compute_sweep_slowdowns(groups_by_swept_values(summary))[0]
    comparison = _two_fastest_strategies_at(summary, worst_effect.after.condition)
    return comparison if comparison and comparison.has_other_strategy else None


def _two_fastest_strategies_at(summary: RunSummary, swept_values: str) -> TwoFastestStrategies | None:
    """Compare the two fastest strategies that ran with the given swept values.

    The one-worker baseline is left out.
    """
    groups = [group for group in summary.trial_groups if group.condition == swept_values and not group.is_baseline]
    return compare_fastest_group(groups, summary)


def _describe_sweep_effect(summary: RunSummary, two_fastest_at_slowest_values: TwoFastestStrategies | None) -> str:
    """Describe how much the swept values slow down training.

    The text also names the fastest strategy at the best and at the worst swept values.
    """
    effect = describe_sweep_slowdown(summary)
    if two_fastest_at_slowest_values is None:
        return effect
    worst_effect = compute_sweep_slowdowns(groups_by_swept_values(summary))[0]
    least = _two_fastest_strategies_at(summary, worst_effect.before.condition)
    compared = [two_fastest_at_slowest_values, *([least] if least and least.has_other_strategy else [])]
    return "; ".join([effect, *(_fastest_strategy_clause(comparison) for comparison in compared)])


def _fastest_strategy_clause(fastest_pair: TwoFastestStrategies) -> str:
    """Return a part of a sentence, such as "with link 10mbit, ring is fastest, 5.04 times as fast as ps"."""
    condition, winner = f"with {fastest_pair.winner.condition}", fastest_pair.winner.strategy
    rival = fastest_pair.rival.strategy if fastest_pair.rival else ""
    tied = dict.fromkeys(group.strategy for group in fastest_pair.tied if group.strategy != winner)
    if tied:
        return f"{condition}, {join_names([winner, *tied])} are too close to call"
    achievement = (
        f"reaches {fastest_pair.target} first" if fastest_pair.time_metric == "time_to_target" else "is fastest"
    )
    if not math.isfinite(fastest_pair.second_to_first_ratio):
        return f"{condition}, {winner} {achievement}"
    ratio = format_number(fastest_pair.second_to_first_ratio)
    return f"{condition}, {winner} {achievement}, {ratio} times as fast as {rival}"


def _published_speedup_sentence(published_curve: PublishedCurve, summary: RunSummary) -> str:
    """Return a sentence that compares a published speedup with the speedup measured in this run.

    For example: "ring: others published a speedup of 2.20 on 16 workers (a report), where their own model predicts
    9.40; here it is 9.13, and our closed form predicts 9.30".
    """
    last, own_point = published_curve.points[-1], _find_measured_speedup_at_curve_end(published_curve, summary)
    speedup = f"a speedup of {format_number(last.measured)}" if last.measured else "no measured speedup"
    where = f"on {format_worker_count(last.workers)} ({published_curve.source})"
    model = f", where their own model predicts {format_number(last.predicted)}" if last.predicted else ""
    sentence = f"{published_curve.strategy}: others published {speedup} {where}{model}"
    if own_point is None:
        return f"{sentence}."
    measured, predicted = format_number(own_point.rate_speedup), format_number(own_point.predicted_speedup)
    return f"{sentence}; here it is {measured}, and our closed form predicts {predicted}."


def _published_time_sentence(published_curve: PublishedCurve, summary: RunSummary) -> str:
    """Return a sentence that compares a published speedup in time to a target with the speedups of this run.

    For example: "ring: a published system with 16 times the accelerators of its base (4) reaches its own target 11.3
    times as fast (MLPerf); here, 16 times the workers reach the target 8.10 times as fast with batch fixed".

    The sentence is about the largest relative size that was measured here, or else the largest one that was published.
    """
    published = {
        published_curve.relative_size(point): point.measured for point in published_curve.points if point.measured
    }
    if not published:
        return ""
    curves = [curve for curve in summary.curves if curve.strategy == published_curve.strategy]
    own = {
        (point.workers / curve.base.workers, curve.condition): point.speedup
        for curve in curves
        if curve.of == "time_to_target"
        for point in curve.points
    }
    size = max(published.keys() & {size for size, _ in own}, default=max(published))
    sentence = (
        f"{published_curve.strategy}: a published system with {format_number(size)} times the accelerators of its base "
        f"({published_curve.base_workers}) reaches its own target {format_number(published[size])} times as fast "
        f"({published_curve.source})"
    )
    texts = [
        " with ".join(filter(None, [format_number(speedup), condition]))
        for (own_size, condition), speedup in own.items()
        if own_size == size
    ]
    if not texts:
        return f"{sentence}."
    return f"{sentence}; here, {format_number(size)} times the workers have a speedup of {join_names(texts)}."


def _find_measured_speedup_at_curve_end(published_curve: PublishedCurve, summary: RunSummary) -> SpeedupPoint | None:
    """Return the speedup measured on the largest number of workers with a published speedup.

    Return None if that number was not measured.
    """
    points = (point for curve in summary.curves if curve.strategy == published_curve.strategy for point in curve.points)
    return next((point for point in points if point.workers == published_curve.points[-1].workers), None)


def _partition_sentence(summary: RunSummary) -> str:
    """Return a sentence on the trials in which a partition separated nodes; empty if there are none.

    It states for how long workers were blocked where that is measured. The times of exchange and wait of these trials
    contain the partition, so the links alone do not explain them.
    """
    blocked_s = [
        (event.least_blocked_s, event.most_blocked_s)
        for trial in summary.trials
        for event in trial.events
        if event.kind == "partition" and event.least_blocked_s is not None and event.most_blocked_s is not None
    ]
    is_partitioned = any(
        event.kind == "partition" and event.applied_s is not None for trial in summary.trials for event in trial.events
    )
    if not blocked_s:
        unknown = (
            "A partition of the network separated nodes during training; for how long workers were blocked is not "
        )
        return f"{unknown}measured, because a step was broken off or none can be compared." if is_partitioned else ""
    least, most = min(least_s for least_s, _ in blocked_s), max(most_s for _, most_s in blocked_s)
    return (
        "A partition of the network separated nodes during training: in the steps that overlap with it, workers were "
        f"blocked on the network for {format_number(least)} to {format_number(most)} s more than in as many other "
        "steps; exchange and wait include this time."
    )


def _run_reliability_sentence(summary: RunSummary) -> str:
    """Return a sentence on how reliable the results of a run are.

    The sentence says whether trials have the fidelity verdict `degraded` or `invalid`, and whether each trial ran once.
    """
    reliability = {
        VerdictLevel.VALID: "",
        VerdictLevel.DEGRADED: "Some trials are degraded; read their reasons below.",
        VerdictLevel.INVALID: "Some trials are invalid: this result is unproven until the reasons below are fixed.",
    }[_worst_unexplained_level(summary)]
    repeats = max(len(group.trials) for group in summary.trial_groups)
    once = "Each trial ran once: the significance of differences is not measured, and no number has an interval."
    return " ".join(filter(None, [reliability, once if repeats == 1 else _describe_few_repeats(summary, repeats)]))


def _worst_unexplained_level(summary: RunSummary) -> VerdictLevel:
    """Return the verdict of the run without trials that a declared loss of a node ended: nothing is wrong with them."""
    unexplained = [trial.verdict for trial in summary.trials if not trial.is_ended_as_declared]
    has_other_problems = summary.damage or summary.not_run
    has_declared_ends = len(unexplained) < len(summary.trials)
    return worst_level(unexplained) if has_declared_ends and not has_other_problems else summary.verdict


def _describe_few_repeats(summary: RunSummary, repeats: int) -> str:
    """Return a sentence on few repeats, if a difference whose own interval excludes 1 is not significant.

    The test of significance counts all comparisons of the run, and has little power with few seeds.
    """
    comparisons = [gap.comparison for gap in summary.strategy_time_gaps if not gap.is_significant]
    intervals = [comparison.interval for comparison in comparisons if comparison.interval]
    if repeats > MAX_FEW_REPEATS or not any(low > 1 or high < 1 for low, high in intervals):
        return ""
    return (
        f"With {repeats} repeats, some differences are not significant after the adjustment for all comparisons of the "
        "run, although the 95% interval of their time ratio excludes 1; more repeats may make them significant."
    )
