"""Which strategy wins, on how many workers, and why? Answered in a few sentences from the numbers alone.

What was varied is what was asked (`analysis.report.answers`); the winner and the reasons follow. Where no kind of question
is recognised, what conditions cost comes first, growth where one strategy runs on many workers, else the winner.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.checks.verdict import VerdictLevel
from analysis.metrics.comparison import Difference, difference_of
from analysis.metrics.speedup import Point
from analysis.report.answers import CAUSE, FEW, TIE, answer, foretold, in_new, last_step, steps_grown, switch_of
from analysis.report.wording import number, sentence, share, workers
from analysis.results.excluded_trials import count_planned_trials, count_unreadable_trials
from analysis.results.result import TimeMetric, TrialGroup, choose_time_metric
from analysis.results.summary import RunSummary
from analysis.results.swept_conditions import condition_effects, describe_condition_effects, groups_across_conditions
from analysis.statistics.guard import CHANCE
from services.scenario.published import PublishedCurve

TWO = 2  # repeats, of which none is dropped
VERBS = {"exchange": "exchanges for", "wait": "waits", "compute": "computes for", "update": "updates for"}


@dataclass(frozen=True)
class Contest:
    """The best strategy against the best of the others."""

    winner: TrialGroup
    rival: TrialGroup | None  # the best group of another strategy; None when there is only one strategy
    of: TimeMetric
    target: str | None
    test: Difference | None  # of the two over their shared seeds; None where there is none, as of other sizes

    @property
    def ratio(self) -> float:
        """Time of the rival / time of the winner; infinite when the rival missed the target, NaN without any time."""
        if self.rival is None:
            return 1.0
        ours, theirs = (group.mean_time_s(self.of) for group in (self.winner, self.rival))
        return theirs / ours if ours else math.nan

    @property
    def tied(self) -> bool:
        """Whether the two are too close to call, by the test that the list under the headline goes by.

        Without one by whether the ranges of their repeats overlap; of single runs, by whether the ratio is below TIE.
        """
        if self.rival is None or not math.isfinite(self.ratio):
            return False
        if self.test:
            return self.test.p_adjusted >= CHANCE
        if 1 in (len(self.winner.trials), len(self.rival.trials)):
            return self.ratio < TIE
        return _ranges_overlap(self.winner, self.rival, self.of)

    @property
    def verdict(self) -> str:
        """Who wins, on how many workers, by how much."""
        text = f"{self.winner.description} {self._feat}"
        if self.rival is None or math.isnan(self.ratio):
            return text
        if not math.isfinite(self.ratio):
            return f"{text}; no other strategy does"
        if self.tied:
            return f"{text}, too close to call against {self.rival.description}"
        return f"{text}, {number(self.ratio)} times as fast as {self.rival.description}"

    @property
    def _feat(self) -> str:
        if self.of == "time_to_target":
            repeats = len(self.winner.trials)
            mean = f" ({'olympic ' * (repeats > TWO)}mean of {repeats} repeats)" if repeats > 1 else ""
            return f"reaches {self.target} first, in {number(self.winner.time_to_target_s)} s{mean}"
        taken = self.winner.mean_time_s(self.of)
        return f"trains fastest, {number(1 / taken)} samples per second" if taken else "trains in no time"


def contest(summary: RunSummary) -> Contest | None:
    """Ranks the finished groups by time to target when any reached it, else by seconds per sample."""
    return _contest(summary.groups, summary)


def _contest(groups: Sequence[TrialGroup], summary: RunSummary) -> Contest | None:
    of = choose_time_metric(groups)
    ranked = sorted(groups, key=lambda group: group.mean_time_s(of))
    if not ranked:
        return None
    winner = ranked[0]
    rival = next(iter(_rivals(winner, ranked)), None)
    test = difference_of(winner, rival, summary.differences) if rival else None
    return Contest(winner, rival, of, summary.target, test)


def _rivals(winner: TrialGroup, ranked: Sequence[TrialGroup]) -> list[TrialGroup]:
    """The groups of other strategies; against one worker alone, those that really share the work, if any."""
    others = [group for group in ranked if group.strategy != winner.strategy and group.condition == winner.condition]
    sharing = [group for group in others if group.workers > 1] if winner.workers == 1 else []
    return sharing or [group for group in others if not group.is_baseline] or others


def headline(summary: RunSummary) -> list[str]:
    """The answer as sentences: what was asked, who wins, why, what more workers buy, and whether to believe it."""
    outcome = contest(summary)
    if outcome is None:
        return ["No trial finished, so there is nothing to compare."]
    told = [answer(summary), *_answers(summary, outcome), *_switches(summary), _gain(summary, outcome.winner)]
    told.append("; ".join(growth for curve in summary.curves if in_new(growth := last_step(curve), told)))
    told += [foretold(grown)] if (grown := [curve for curve in summary.curves if curve.foretold]) else []
    told += [_published(each, summary) for each in summary.published]
    said = [each for place, each in enumerate(told) if in_new(each, told[:place])]
    if lost := count_unreadable_trials(summary):
        said[0] = (
            f"with {lost} of {count_planned_trials(summary)} trials unreadable, {said[0]}"  # the winner may be among them
        )
    return [f"{sentence(each).removesuffix('.')}." for each in (*said, _trust(summary)) if each]


def _answers(summary: RunSummary, outcome: Contest) -> list[str]:
    """Winner, reason and finding in the order in which what was swept asks for them."""
    missed = f"No strategy reached {outcome.target}; " if outcome.target and outcome.of == "time_to_samples" else ""
    wins = f"{missed}{outcome.verdict}"
    if describe_condition_effects(summary):
        worst = _under_the_worst(summary)
        return [_conditions(summary, worst), _why(summary, worst or outcome), wins]
    if len(summary.strategies) == 1 and len(summary.curves) == 1:
        return [last_step(summary.curves[0]), wins, _why(summary, outcome)]
    return [wins, steps_grown(summary, outcome.winner.condition), _why(summary, outcome)]


def _switches(summary: RunSummary) -> list[str]:
    """For every switching strategy: whether it switched, and whether that paid."""
    grown = sorted(summary.groups, key=lambda group: group.workers)
    largest = {group.strategy: group for group in grown}  # on as many workers as were tried
    return [switch_of(group) for group in largest.values() if any(trial.switch for trial in group.trials)]


def _under_the_worst(summary: RunSummary) -> Contest | None:
    """The contest under the last condition of the finding; None where only one strategy meets it."""
    found = _among(summary, condition_effects(groups_across_conditions(summary))[0].after.condition)
    return found if found and found.rival else None


def _among(summary: RunSummary, condition: str) -> Contest | None:
    """The contest of all who work together under one condition."""
    met = [group for group in summary.groups if group.condition == condition and not group.is_baseline]
    return _contest(met, summary)


def _conditions(summary: RunSummary, worst: Contest | None) -> str:
    """What conditions cost, and who is fastest under the one that costs most and under the one that costs least."""
    told = describe_condition_effects(summary)
    if worst is None or worst.rival is None:
        return told
    least = _among(summary, condition_effects(groups_across_conditions(summary))[0].before.condition)
    return "; ".join([told, _under(worst), *([_under(least)] if least and least.rival else [])])


def _under(found: Contest) -> str:
    """As in "with link 10mbit, ring is fastest, 5.04 times as fast as ps"."""
    under, first = f"with {found.winner.condition}", found.winner.strategy
    rival = found.rival.strategy if found.rival else ""
    if found.tied:
        return f"{under}, {first} and {rival} are too close to call"
    feat = f"reaches {found.target} first" if found.of == "time_to_target" else "is fastest"
    if not math.isfinite(found.ratio):
        return f"{under}, {first} {feat}"
    return f"{under}, {first} {feat}, {number(found.ratio)} times as fast as {rival}"


def _published(theirs: PublishedCurve, summary: RunSummary) -> str:
    """As in "ring: published are 2.20 times on 16 workers (a report), where their own model says 9.40; here 9.13 …"."""
    last, ours = theirs.points[-1], _ours(theirs, summary)
    told = f"{number(last.measured)} times" if last.measured else "no measured speedup"
    model = f", where their own model says {number(last.predicted)}" if last.predicted else ""
    here = f"; here {number(ours.rate_speedup)}, and our form says {number(ours.predicted_speedup)}" if ours else ""
    return f"{theirs.strategy}: others published {told} on {workers(last.workers)} ({theirs.source}){model}{here}."


def _ours(theirs: PublishedCurve, summary: RunSummary) -> Point | None:
    """Our point on as many workers as their last one, where there is one."""
    found = (curve.points for curve in summary.curves if curve.strategy == theirs.strategy)
    return next((each for points in found for each in points if each.workers == theirs.points[-1].workers), None)


def _why(summary: RunSummary, outcome: Contest) -> str:
    """The phase that costs the others most, and what they need in samples; others on as many workers, if any."""
    peers = _peers(summary, outcome)
    if not peers:
        return ""
    parts = [_phases(outcome.winner, peers)]
    if outcome.of == "time_to_target":
        parts += _learned(outcome.winner, peers)
    told = "; ".join(part for part in parts if part)
    winner = outcome.winner
    under = f"with {winner.condition} " if winner.condition else ""
    where = f"{under}on {workers(winner.workers)} " if winner.workers > 1 else under
    return f"Why: {where}{told}." if told else ""


def _peers(summary: RunSummary, outcome: Contest) -> list[TrialGroup]:
    """The other strategies on as many workers; the rival where there are none or the winner works alone."""
    winner = outcome.winner
    peers = [
        group
        for group in summary.groups
        if group.strategy != winner.strategy and not group.is_baseline and winner.workers > 1
        if (group.condition, group.workers) == (winner.condition, winner.workers)
    ]
    return peers or ([outcome.rival] if outcome.rival else [])


def _phases(winner: TrialGroup, peers: Sequence[TrialGroup]) -> str:
    """As in "ring exchanges for 5.91 ms per step, ps_bsp for 31.4 ms"; empty when the winner leads in none by much."""
    gaps = {
        phase: max(peer.step_phase_s.get(phase, 0.0) for peer in peers) - winner.step_phase_s.get(phase, 0.0)
        for phase in VERBS
    }
    phase = max(gaps, key=lambda name: gaps[name])
    if gaps[phase] <= (CAUSE - 1) * winner.step_phase_s.get(phase, 0.0):
        return ""
    ranked = sorted(peers, key=lambda peer: peer.step_phase_s.get(phase, 0.0))
    shown = peers if len(peers) <= FEW else [ranked[0], ranked[-1]]
    others = ", ".join(f"{_name(peer, winner)} for {_phase_ms(peer, phase)} ms" for peer in shown)
    rest = "" if len(peers) <= FEW else ", the others for times in between"
    return f"{_name(winner, winner)} {VERBS[phase]} {_phase_ms(winner, phase)} ms per step, {others}{rest}"


def _phase_ms(group: TrialGroup, phase: str) -> str:
    return number(1000 * group.step_phase_s.get(phase, 0.0))


def _learned(winner: TrialGroup, peers: Sequence[TrialGroup]) -> list[str]:
    """Of few peers every word; of many, who misses the target and who needs most samples."""
    if len(peers) <= FEW:
        return [_learning(winner, peer) for peer in peers]
    reached = [peer for peer in peers if peer.has_reached_target]
    missed = [_name(peer, winner) for peer in peers if not peer.has_reached_target]
    hungriest = sorted(reached, key=lambda peer: -peer.samples_to_target)[:1]
    who = f"{', '.join(missed)} miss{'es' * (len(missed) == 1)} the target" if missed else ""
    return [*(_learning(winner, peer) for peer in hungriest), who]


def _learning(winner: TrialGroup, peer: TrialGroup) -> str:
    """Who needs more samples, and how stale its gradients are; empty when both need about as many."""
    factor = peer.samples_to_target / winner.samples_to_target
    if not math.isfinite(factor):
        return f"{_name(peer, winner)} misses the target"
    if 1 / CAUSE <= factor <= CAUSE:
        return ""
    hungry, thrifty = (peer, winner) if factor > 1 else (winner, peer)
    times = max(factor, 1 / factor)
    return (
        f"{_name(hungry, winner)} needs {number(times)} times the samples of {_name(thrifty, winner)}{_stale(hungry)}"
    )


def _stale(group: TrialGroup) -> str:
    means = [trial.staleness["mean"] for trial in group.trials if trial.staleness]
    return f" (its gradients are {sum(means) / len(means):.1f} updates old)" if means and max(means) > 0 else ""


def _name(group: TrialGroup, winner: TrialGroup) -> str:
    if group.is_baseline:
        return "one worker alone"
    return group.strategy if group.workers == winner.workers else f"{group.strategy} on {group.workers}"


def _gain(summary: RunSummary, winner: TrialGroup) -> str:
    """Speedup and efficiency of the winner, with the split."""
    if winner.workers == 1:
        return "More workers do not pay here." if summary.curves else ""
    for curve in summary.curves:
        if (curve.strategy, curve.condition) != (winner.strategy, winner.condition):
            continue
        if (curve.base.strategy, curve.base.workers) == (winner.strategy, winner.workers):
            return ""  # its own base
        point = next(point for point in curve.points if point.workers == winner.workers)
        split = f"hardware {share(point.hardware_efficiency)}"
        if point.statistical_efficiency is not None:
            split += f", statistical {share(point.statistical_efficiency)}"
        kept = f"that is {share(point.efficiency)} efficiency ({split})"
        return f"Speedup of {winner.description} over {curve.base_called}: {number(point.speedup)}, {kept}"
    return ""


def _trust(summary: RunSummary) -> str:
    told = {
        VerdictLevel.VALID: "",
        VerdictLevel.DEGRADED: "Some trials are degraded; read their reasons below.",
        VerdictLevel.INVALID: "Some trials are invalid: take this answer as unproven until their reasons are mended.",
    }
    repeats = max(len(group.trials) for group in summary.groups)
    once = "Each trial ran once: differences of a few percent mean nothing yet." if repeats == 1 else ""
    return " ".join(filter(None, [told[summary.verdict], once]))


def _ranges_overlap(winner: TrialGroup, rival: TrialGroup, of: TimeMetric) -> bool:
    """Whether the slowest repeat of the winner is slower than the fastest of the rival."""
    ours, theirs = (each.times_s(of) for each in (winner, rival))
    return bool(ours.max() >= theirs.min())
