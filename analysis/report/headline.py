"""Headline of a report: sentences that state which strategy wins, on how many workers, and why.

The main finding (`analysis.report.findings`) comes first, then the winner and the causes. Without a main finding, the
effects of the swept conditions come first, then the growth where one strategy runs on many workers, else the winner.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.checks.verdict import VerdictLevel
from analysis.metrics.speedup import SpeedupPoint
from analysis.metrics.strategy_comparison import StrategyTimeGap, find_group_time_gap
from analysis.report import findings
from analysis.report.wording import capitalise_first_letter, format_number, format_percentage, format_worker_count
from analysis.results.excluded_trials import count_planned_trials, count_unreadable_trials
from analysis.results.summary import RunSummary
from analysis.results.swept_values import compute_sweep_slowdowns, describe_sweep_slowdown, groups_by_swept_values
from analysis.results.trial_result import TimeMetric, TrialGroup, choose_time_metric
from analysis.statistics.convergence_check import SIGNIFICANCE_LEVEL
from services.scenario.published_curves import PublishedCurve

UNTRIMMED_REPEATS = 2  # number of repeats up to which the olympic mean drops none
PHASE_VERBS = {"exchange": "exchanges for", "wait": "waits for", "compute": "computes for", "update": "updates for"}


@dataclass(frozen=True)
class TwoFastestStrategies:
    """The fastest group of trials (winner), compared with the fastest group of another strategy (rival)."""

    winner: TrialGroup
    rival: TrialGroup | None  # None where there is only one strategy
    time_metric: TimeMetric
    target: str | None
    difference: StrategyTimeGap | None  # over their shared seeds; None where they cannot be paired

    @property
    def second_to_first_ratio(self) -> float:
        """Time of the second fastest strategy (rival) / time of the fastest (winner).

        Infinite if the rival missed the target, NaN if the time of the winner is 0.
        """
        if self.rival is None:
            return 1.0
        winner_s, rival_s = (group.mean_time_s(self.time_metric) for group in (self.winner, self.rival))
        return rival_s / winner_s if winner_s else math.nan

    @property
    def is_tied(self) -> bool:
        """Whether the times of the fastest strategy (winner) and the next (rival) are too close to call.

        The paired test decides where there is one (as in the summary text), else by whether the ranges of their
        repeats overlap; for single runs by whether the ratio is below TIE_RATIO.
        """
        if self.rival is None or not math.isfinite(self.second_to_first_ratio):
            return False
        if self.difference:
            return self.difference.p_adjusted >= SIGNIFICANCE_LEVEL
        if 1 in (len(self.winner.trials), len(self.rival.trials)):
            return self.second_to_first_ratio < findings.TIE_RATIO
        return _repeat_times_overlap(self.winner, self.rival, self.time_metric)

    @property
    def description(self) -> str:
        """Sentence that states which strategy wins, on how many workers, and by how much."""
        text = f"{self.winner.description} {self._winner_time_clause}"
        if self.rival is None or math.isnan(self.second_to_first_ratio):
            return text
        if not math.isfinite(self.second_to_first_ratio):
            return f"{text}; no other strategy does"
        if self.is_tied:
            return f"{text}, too close to call against {self.rival.description}"
        return f"{text}, {format_number(self.second_to_first_ratio)} times as fast as {self.rival.description}"

    @property
    def _winner_time_clause(self) -> str:
        """Predicate of the sentence on the fastest strategy, such as "reaches accuracy ≥ 0.95 first, in 1.23 s"."""
        if self.time_metric == "time_to_target":
            repeats = len(self.winner.trials)
            mean = f" ({'olympic ' * (repeats > UNTRIMMED_REPEATS)}mean of {repeats} repeats)" if repeats > 1 else ""
            return f"reaches {self.target} first, in {format_number(self.winner.time_to_target_s)} s{mean}"
        time_s = self.winner.mean_time_s(self.time_metric)
        return f"trains fastest, {format_number(1 / time_s)} samples per second" if time_s else "takes no virtual time"


def compare_winner_with_rival(summary: RunSummary) -> TwoFastestStrategies | None:
    """Compare the fastest strategy of a run with the fastest other strategy (its rival).

    Times are times to the target if a group of trials reached it, else per sample. None where no trial finished.
    """
    return _compare_two_fastest_groups(summary.trial_groups, summary)


def _compare_two_fastest_groups(trial_groups: Sequence[TrialGroup], summary: RunSummary) -> TwoFastestStrategies | None:
    time_metric = choose_time_metric(trial_groups)
    ranked = sorted(trial_groups, key=lambda group: group.mean_time_s(time_metric))
    if not ranked:
        return None
    winner = ranked[0]
    rival = next(iter(_find_rival_groups(winner, ranked)), None)
    difference = find_group_time_gap(winner, rival, summary.strategy_time_gaps) if rival else None
    return TwoFastestStrategies(winner, rival, time_metric, summary.target, difference)


def _find_rival_groups(winner: TrialGroup, trial_groups: Sequence[TrialGroup]) -> list[TrialGroup]:
    """Return the groups of trials that the fastest group, `winner`, is compared with.

    These groups ran other strategies with the same swept values as the winner. The one-worker baseline is left out if
    there are other groups. If the winner is a single worker, it is compared with groups of several workers where there
    are any.
    """
    others = [
        group for group in trial_groups if group.strategy != winner.strategy and group.condition == winner.condition
    ]
    sharing = [group for group in others if group.workers > 1] if winner.workers == 1 else []
    return sharing or [group for group in others if not group.is_baseline] or others


def headline_sentences(summary: RunSummary) -> list[str]:
    """Return the headline sentences of a report: main finding, fastest strategy, causes, and reliability."""
    comparison = compare_winner_with_rival(summary)
    if comparison is None:
        return ["No trial finished, so there is nothing to compare."]
    candidates = [
        findings.describe_main_finding(summary),
        *_make_winner_sentences(summary, comparison),
        *_strategy_switch_sentences(summary),
        _speedup_sentence(summary, comparison.winner),
    ]
    increases = (findings.describe_gain_of_more_workers(curve) for curve in summary.curves)
    candidates.append("; ".join(increase for increase in increases if findings.is_new_sentence(increase, candidates)))
    predicted = [curve for curve in summary.curves if curve.has_predictions]
    candidates += [findings.describe_predicted_speedups(predicted)] if predicted else []
    candidates += [_published_speedup_sentence(published, summary) for published in summary.published]
    sentences = [text for index, text in enumerate(candidates) if findings.is_new_sentence(text, candidates[:index])]
    if unreadable_count := count_unreadable_trials(summary):  # the winner may be among the unreadable trials
        sentences[0] = f"with {unreadable_count} of {count_planned_trials(summary)} trials unreadable, {sentences[0]}"
    sentences.append(_run_reliability_sentence(summary))
    return [f"{capitalise_first_letter(sentence).removesuffix('.')}." for sentence in sentences if sentence]


def _make_winner_sentences(summary: RunSummary, fastest_pair: TwoFastestStrategies) -> list[str]:
    """Return sentences that say which strategy is fastest, why, and what the swept values change.

    The most relevant sentence is the first.
    """
    is_missed = fastest_pair.target and fastest_pair.time_metric == "time_to_samples"
    missed = f"No strategy reached {fastest_pair.target}; " if is_missed else ""
    winner_sentence = f"{missed}{fastest_pair.description}"
    if describe_sweep_slowdown(summary):
        worst = _find_two_fastest_at_slowest_sweep(summary)
        return [
            _describe_sweep_effect(summary, worst),
            _why_winner_wins(summary, worst or fastest_pair),
            winner_sentence,
        ]
    cause = _why_winner_wins(summary, fastest_pair)
    if len(summary.strategies) == 1 and len(summary.curves) == 1:
        return [findings.describe_gain_of_more_workers(summary.curves[0]), winner_sentence, cause]
    return [winner_sentence, findings.describe_step_time_growth(summary, fastest_pair.winner.condition), cause]


def _strategy_switch_sentences(summary: RunSummary) -> list[str]:
    """Return one sentence for each strategy that switches to another strategy.

    The sentence says whether the switch took place and saved time on the strategy's largest number of workers.
    """
    by_size = sorted(summary.trial_groups, key=lambda group: group.workers)
    largest = {group.strategy: group for group in by_size}  # the last group of a strategy has the most workers
    groups = (group for group in largest.values() if any(trial.switch for trial in group.trials))
    return [findings.switch_outcome_sentence(group) for group in groups]


def _find_two_fastest_at_slowest_sweep(summary: RunSummary) -> TwoFastestStrategies | None:
    """Compare the two fastest strategies under the swept values that make training slowest.

    Return None if only one strategy ran with these values.
    """
    worst_effect = compute_sweep_slowdowns(groups_by_swept_values(summary))[0]
    comparison = _two_fastest_strategies_at(summary, worst_effect.after.condition)
    return comparison if comparison and comparison.rival else None


def _two_fastest_strategies_at(summary: RunSummary, swept_values: str) -> TwoFastestStrategies | None:
    """Compare the two fastest strategies that ran with the given swept values.

    The one-worker baseline is left out.
    """
    groups = [group for group in summary.trial_groups if group.condition == swept_values and not group.is_baseline]
    return _compare_two_fastest_groups(groups, summary)


def _describe_sweep_effect(summary: RunSummary, two_fastest_at_slowest_values: TwoFastestStrategies | None) -> str:
    """Describe how much the swept values slow down training.

    The text also names the fastest strategy at the best and at the worst swept values.
    """
    effect = describe_sweep_slowdown(summary)
    if two_fastest_at_slowest_values is None or two_fastest_at_slowest_values.rival is None:
        return effect
    worst_effect = compute_sweep_slowdowns(groups_by_swept_values(summary))[0]
    least = _two_fastest_strategies_at(summary, worst_effect.before.condition)
    compared = [two_fastest_at_slowest_values, least] if least and least.rival else [two_fastest_at_slowest_values]
    return "; ".join([effect, *(_fastest_strategy_clause(comparison) for comparison in compared)])


def _fastest_strategy_clause(fastest_pair: TwoFastestStrategies) -> str:
    """Return a part of a sentence, such as "with link 10mbit, ring is fastest, 5.04 times as fast as ps"."""
    condition, winner = f"with {fastest_pair.winner.condition}", fastest_pair.winner.strategy
    rival = fastest_pair.rival.strategy if fastest_pair.rival else ""
    if fastest_pair.is_tied:
        return f"{condition}, {winner} and {rival} are too close to call"
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


def _find_measured_speedup_at_curve_end(published_curve: PublishedCurve, summary: RunSummary) -> SpeedupPoint | None:
    """Return the speedup measured on the largest number of workers with a published speedup.

    Return None if that number was not measured.
    """
    points = (point for curve in summary.curves if curve.strategy == published_curve.strategy for point in curve.points)
    return next((point for point in points if point.workers == published_curve.points[-1].workers), None)


def _why_winner_wins(summary: RunSummary, fastest_pair: TwoFastestStrategies) -> str:
    """Describe why the fastest strategy beats other strategies on the same number of workers.

    The cause is a shorter step phase, or fewer samples.
    """
    peers = _find_same_worker_count_rivals(summary, fastest_pair)
    if not peers:
        return ""
    winner = fastest_pair.winner
    causes = [_describe_step_phase_saving(winner, peers)]
    if fastest_pair.time_metric == "time_to_target":
        causes += _samples_to_target_clauses(winner, peers)
    text = "; ".join(cause for cause in causes if cause)
    condition = f"with {winner.condition} " if winner.condition else ""
    where = f"{condition}on {format_worker_count(winner.workers)} " if winner.workers > 1 else condition
    return f"Why: {where}{text}." if text else ""


def _find_same_worker_count_rivals(summary: RunSummary, fastest_pair: TwoFastestStrategies) -> list[TrialGroup]:
    """Return the groups of trials of other strategies that ran on as many workers as the fastest strategy.

    If there is no such group, or the fastest (winner) is a single worker, return the winner's rival only.
    """
    winner = fastest_pair.winner
    peers = [
        group
        for group in summary.trial_groups
        if group.strategy != winner.strategy and not group.is_baseline and winner.workers > 1
        if (group.condition, group.workers) == (winner.condition, winner.workers)
    ]
    return peers or ([fastest_pair.rival] if fastest_pair.rival else [])


def _describe_step_phase_saving(winner_group: TrialGroup, peer_groups: Sequence[TrialGroup]) -> str:
    """Return a part of a sentence on the step phase in which the fastest strategy saves most time.

    A step phase is, for instance, compute. For example: "ring exchanges for 5.91 ms per step, ps_bsp for 31.4 ms".
    Empty if it saves little in every phase.
    """
    saved_s = {
        phase: max(peer.mean_s_by_step_phase.get(phase, 0.0) for peer in peer_groups)
        - winner_group.mean_s_by_step_phase.get(phase, 0.0)
        for phase in PHASE_VERBS
    }
    phase = max(saved_s, key=lambda name: saved_s[name])
    if saved_s[phase] <= (findings.MIN_CAUSE_RATIO - 1) * winner_group.mean_s_by_step_phase.get(phase, 0.0):
        return ""
    ranked = sorted(peer_groups, key=lambda peer: peer.mean_s_by_step_phase.get(phase, 0.0))
    shown = peer_groups if len(peer_groups) <= findings.MAX_LISTED else [ranked[0], ranked[-1]]
    others = ", ".join(
        f"{_format_short_group_name(peer, winner_group)} for {_format_step_phase_ms(peer, phase)} ms" for peer in shown
    )
    rest = "" if len(peer_groups) <= findings.MAX_LISTED else ", the others for times in between"
    winner_name = _format_short_group_name(winner_group, winner_group)
    own = f"{winner_name} {PHASE_VERBS[phase]} {_format_step_phase_ms(winner_group, phase)} ms per step"
    return f"{own}, {others}{rest}"


def _format_step_phase_ms(trial_group: TrialGroup, phase_name: str) -> str:
    return format_number(1000 * trial_group.mean_s_by_step_phase.get(phase_name, 0.0))


def _samples_to_target_clauses(winner_group: TrialGroup, peer_groups: Sequence[TrialGroup]) -> list[str]:
    """Return parts of a sentence that compare the samples to target of several strategies.

    Other strategies are compared with the fastest strategy. Of more than MAX_LISTED peers, return those that missed the
    target and the one that needs most samples.
    """
    if len(peer_groups) <= findings.MAX_LISTED:
        return [_compare_samples_to_target(winner_group, peer) for peer in peer_groups]
    reached = [peer for peer in peer_groups if peer.has_reached_target]
    missed = [_format_short_group_name(peer, winner_group) for peer in peer_groups if not peer.has_reached_target]
    with_most_samples = sorted(reached, key=lambda peer: -peer.mean_samples_to_target)[:1]
    missed_text = f"{', '.join(missed)} miss{'es' * (len(missed) == 1)} the target" if missed else ""
    return [*(_compare_samples_to_target(winner_group, peer) for peer in with_most_samples), missed_text]


def _compare_samples_to_target(winner_group: TrialGroup, peer_group: TrialGroup) -> str:
    """Describe which of two groups of trials needs more samples to reach the target.

    The text also says how stale the gradients of this group are.
    """
    factor = peer_group.mean_samples_to_target / winner_group.mean_samples_to_target
    if not math.isfinite(factor):
        return f"{_format_short_group_name(peer_group, winner_group)} misses the target"
    if 1 / findings.MIN_CAUSE_RATIO <= factor <= findings.MIN_CAUSE_RATIO:
        return ""
    more, fewer = (peer_group, winner_group) if factor > 1 else (winner_group, peer_group)
    times = format_number(max(factor, 1 / factor))
    staleness = _describe_mean_staleness(more)
    more_name, fewer_name = (_format_short_group_name(group, winner_group) for group in (more, fewer))
    return f"{more_name} needs {times} times the samples of {fewer_name}{staleness}"


def _describe_mean_staleness(trial_group: TrialGroup) -> str:
    means = [trial.staleness["mean"] for trial in trial_group.trials if trial.staleness]
    return f" (its gradients are {sum(means) / len(means):.1f} updates old)" if means and max(means) > 0 else ""


def _format_short_group_name(group: TrialGroup, winner: TrialGroup) -> str:
    """Return the strategy name of a group of trials.

    The number of workers is added if it differs from the winner's.
    """
    if group.is_baseline:
        return "one worker alone"
    if group.workers == winner.workers:
        return group.strategy
    return f"{group.strategy} on {format_worker_count(group.workers)}"


def _speedup_sentence(summary: RunSummary, winner_group: TrialGroup) -> str:
    """Return a sentence on speedup and efficiency of the fastest strategy, with hardware and statistical efficiency."""
    if winner_group.workers == 1:
        return "More workers do not pay off here." if summary.curves else ""
    for curve in summary.curves:
        if (curve.strategy, curve.condition) != (winner_group.strategy, winner_group.condition):
            continue
        if (curve.base.strategy, curve.base.workers) == (winner_group.strategy, winner_group.workers):
            return ""  # the winner is its own base
        point = next(point for point in curve.points if point.workers == winner_group.workers)
        factors = f"hardware {format_percentage(point.hardware_efficiency)}"
        if point.statistical_efficiency is not None:
            factors += f", statistical {format_percentage(point.statistical_efficiency)}"
        efficiency = f"that is {format_percentage(point.efficiency)} efficiency ({factors})"
        speedup = f"Speedup of {winner_group.description} over {curve.base_description}: {format_number(point.speedup)}"
        return f"{speedup}, {efficiency}"
    return ""


def _run_reliability_sentence(summary: RunSummary) -> str:
    """Return a sentence on how reliable the results of a run are.

    The sentence says whether trials have the fidelity verdict `degraded` or `invalid`, and whether each trial ran once.
    """
    by_level = {
        VerdictLevel.VALID: "",
        VerdictLevel.DEGRADED: "Some trials are degraded; read their reasons below.",
        VerdictLevel.INVALID: "Some trials are invalid: this result is unproven until the reasons below are fixed.",
    }
    repeats = max(len(group.trials) for group in summary.trial_groups)
    once = "Each trial ran once: differences of a few percent mean nothing yet." if repeats == 1 else ""
    return " ".join(filter(None, [by_level[summary.verdict], once]))


def _repeat_times_overlap(winner_group: TrialGroup, rival_group: TrialGroup, time_metric: TimeMetric) -> bool:
    """Return whether the times of winner and rival overlap.

    They overlap if the slowest trial of the winner is at least as slow as the fastest trial of the rival.
    """
    winner_times, rival_times = (group.trial_times_s(time_metric) for group in (winner_group, rival_group))
    return bool(winner_times.max() >= rival_times.min())
