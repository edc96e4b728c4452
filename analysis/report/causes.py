"""Causes of the advantage of the fastest strategy: a shorter phase of the step, or fewer samples to the target."""

from collections.abc import Sequence

from analysis.report.fastest import MAX_LISTED, TwoFastestStrategies, format_missed_repeats
from analysis.report.wording import (
    WAITS_FOR_EXCHANGE,
    format_bytes,
    format_number,
    format_quantity,
    format_worker_count,
)
from analysis.results.comparable_groups import have_same_seeds
from analysis.results.summary import RunSummary
from analysis.results.trial_group import TrialGroup
from analysis.statistics.intervals import ratio_interval

MIN_SAVED_STEP_SHARE = 0.01  # share of a step below which a shorter step phase does not count as a cause
MIN_CAUSE_RATIO = 1.1  # ratio below which a step phase or the samples to target do not count as a cause
PHASE_VERBS = {"exchange": "exchanges for", "wait": "waits for", "compute": "computes for", "update": "updates for"}


def describe_winner_causes(summary: RunSummary, fastest_pair: TwoFastestStrategies) -> str:
    """Describe why the fastest strategy beats other strategies on the same number of workers.

    The cause is a shorter step phase, or fewer samples. Empty where the fastest strategy is too close to call.
    """
    if fastest_pair.is_tied or not fastest_pair.has_other_strategy:
        return ""
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

    A step phase is, for instance, compute. For example: "ring exchanges for a mean of 5.91 ms per step, ps_bsp for
    31.4 ms". The zero of one worker alone is not stated.
    Empty if it saves little in every phase.
    """
    saved_s = {
        phase: max(peer.mean_s_by_step_phase.get(phase, 0.0) for peer in peer_groups)
        - winner_group.mean_s_by_step_phase.get(phase, 0.0)
        for phase in PHASE_VERBS
    }
    phase = max(saved_s, key=lambda name: saved_s[name])
    least_s = MIN_SAVED_STEP_SHARE * sum(winner_group.mean_s_by_step_phase.values())
    if saved_s[phase] <= max((MIN_CAUSE_RATIO - 1) * winner_group.mean_s_by_step_phase.get(phase, 0.0), least_s):
        return ""
    ranked = sorted(peer_groups, key=lambda peer: peer.mean_s_by_step_phase.get(phase, 0.0))
    shown = peer_groups if len(peer_groups) <= MAX_LISTED else [ranked[0], ranked[-1]]
    rest = "" if len(peer_groups) <= MAX_LISTED else "; the other strategies lie between these times"
    hides_communication = any(group.mean_hidden_communication_s for group in (winner_group, *peer_groups))
    verb = WAITS_FOR_EXCHANGE if phase == "exchange" and hides_communication else PHASE_VERBS[phase]
    first, *others = shown if _has_no_phase_alone(winner_group, phase) else (winner_group, *shown)
    first_name = _format_short_group_name(first, winner_group)
    texts = [f"{first_name} {verb} a mean of {_format_step_phase_ms(first, phase)} ms per step"]
    texts += [
        f"{_format_short_group_name(peer, winner_group)} for {_format_step_phase_ms(peer, phase)} ms" for peer in others
    ]
    sizes = _describe_exchange_sizes((first, *others)) if phase == "exchange" else ""
    return f"{', '.join(texts)}{sizes}{rest}"


def _describe_exchange_sizes(groups: Sequence[TrialGroup]) -> str:
    """Return the size of a gradient and the rate of the slowest link with a leading space, in brackets.

    Empty where one of them is not known, or differs between the groups.
    """
    pairs = {(group.gradient_bytes, group.slowest_link_bps) for group in groups}
    size_bytes, rate_bps = next(iter(pairs))
    if len(pairs) > 1 or not size_bytes or not rate_bps:
        return ""
    rate = format_quantity(rate_bps, "bit/s")
    return f" (a gradient has {format_bytes(size_bytes)} without compression, the slowest link {rate})"


def _has_no_phase_alone(winner_group: TrialGroup, phase_name: str) -> bool:
    """Return whether the fastest is a single worker, which has no other worker to exchange with or to wait for."""
    return winner_group.workers == 1 and not winner_group.mean_s_by_step_phase.get(phase_name, 0.0)


def _format_step_phase_ms(trial_group: TrialGroup, phase_name: str) -> str:
    return format_number(1000 * trial_group.mean_s_by_step_phase.get(phase_name, 0.0))


def _samples_to_target_clauses(winner_group: TrialGroup, peer_groups: Sequence[TrialGroup]) -> list[str]:
    """Return parts of a sentence that compare the samples to target of several strategies.

    Other strategies are compared with the fastest strategy. Of more than MAX_LISTED peers, return those that missed the
    target and the one that needs most samples.
    """
    if len(peer_groups) <= MAX_LISTED:
        return [_compare_samples_to_target(winner_group, peer) for peer in peer_groups]
    reached = [peer for peer in peer_groups if peer.has_reached_target]
    missed = [_format_short_group_name(peer, winner_group) for peer in peer_groups if not peer.has_reached_target]
    with_most_samples = sorted(reached, key=lambda peer: -peer.mean_samples_to_target)[:1]
    missed_text = f"{', '.join(missed)} miss{'es' * (len(missed) == 1)} the target" if missed else ""
    return [*(_compare_samples_to_target(winner_group, peer) for peer in with_most_samples), missed_text]


def _compare_samples_to_target(winner_group: TrialGroup, peer_group: TrialGroup) -> str:
    """Describe which of two groups of trials needs more samples to reach the target.

    The text also says how stale the gradients of this group are. It is empty where the samples hardly differ, or differ
    by no more than the evaluations and the seeds explain.
    """
    if any(trial.samples_to_target is None for trial in peer_group.trials):
        name = _format_short_group_name(peer_group, winner_group)
        return f"{name} misses the target{format_missed_repeats(peer_group)}"
    factor = peer_group.mean_samples_to_target / winner_group.mean_samples_to_target
    if 1 / MIN_CAUSE_RATIO <= factor <= MIN_CAUSE_RATIO or not _do_samples_differ(winner_group, peer_group):
        return ""
    more, fewer = (peer_group, winner_group) if factor > 1 else (winner_group, peer_group)
    times = format_number(max(factor, 1 / factor))
    staleness = _describe_mean_staleness(more)
    more_name, fewer_name = (_format_short_group_name(group, winner_group) for group in (more, fewer))
    return f"{more_name} needs {times} times the samples of {fewer_name}{staleness}"


def _do_samples_differ(first_group: TrialGroup, second_group: TrialGroup) -> bool:
    """Return whether two groups need clearly different samples to the target.

    The 95 % interval of their ratio decides. Without repeats, the difference must exceed the samples between two
    evaluations, which the target is rounded up to.
    """
    pair = (first_group, second_group)
    samples, other_samples = (group.samples_to_target_by_seed for group in pair)
    rounding_steps = (first_group.max_eval_gap_samples, second_group.max_eval_gap_samples)
    interval = ratio_interval(samples, other_samples, paired=have_same_seeds(pair), rounding_steps=rounding_steps)
    if interval is not None:
        return not interval[0] <= 1 <= interval[1]
    return bool(abs(samples.mean() - other_samples.mean()) > max(rounding_steps))


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
