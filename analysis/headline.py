"""Which strategy wins, on how many workers, and why? Answered in a few sentences from the numbers alone.

What was swept is what was asked: sentences about conditions come first where conditions differ, the one about growth
where one strategy runs on many numbers of workers, else the winner.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.checks.verdict import Level
from analysis.conditions import effects, finding, ladders
from analysis.metrics.speedup import Curve, Of
from analysis.metrics.switch import how_often, typical
from analysis.metrics.switch import told as switch_told
from analysis.result import Group
from analysis.summary import Summary
from analysis.wording import number, sentence, share, workers

TIE = 1.05  # a ratio of times that single runs cannot tell from 1: MLPerf's runs spread by about 7 %

CAUSE = 1.1  # a ratio below which a phase or a need for samples explains nothing

FEW = 3  # of what a sentence lists in full; of more it names the ends
LADDER = 3  # points of a curve from which on its last step says something
VERBS = {"exchange": "exchanges for", "wait": "waits", "compute": "computes for", "update": "updates for"}


@dataclass(frozen=True)
class Contest:
    """The best strategy against the best of the others."""

    winner: Group
    rival: Group | None  # the best group of another strategy; None when there is only one strategy
    of: Of
    target: str | None

    @property
    def ratio(self) -> float:
        """Time of the rival / time of the winner; infinite when the rival missed the target, NaN without any time."""
        if self.rival is None:
            return 1.0
        ours, theirs = (seconds(group, self.of) for group in (self.winner, self.rival))
        return theirs / ours if ours else math.nan

    @property
    def tied(self) -> bool:
        """Whether the two are too close to call: the ranges of their repeats overlap, or the ratio is within TIE."""
        if self.rival is None or not math.isfinite(self.ratio):
            return False
        return self.ratio < TIE or _ranges_overlap(self.winner, self.rival, self.of)

    @property
    def verdict(self) -> str:
        """Who wins, on how many workers, by how much."""
        text = f"{_where(self.winner)} {self._feat}"
        if self.rival is None or math.isnan(self.ratio):
            return text
        if not math.isfinite(self.ratio):
            return f"{text}; no other strategy does"
        if self.tied:
            return f"{text}, too close to call against {_where(self.rival)}"
        return f"{text}, {self.ratio:.1f} times faster than {_where(self.rival)}"

    @property
    def _feat(self) -> str:
        if self.of == "time_to_target":
            return f"reaches {self.target} first, in {number(self.winner.time_to_target_s)} s"
        taken = seconds(self.winner, self.of)
        return f"trains fastest, {number(1 / taken)} samples per second" if taken else "trains in no time"


def contest(summary: Summary) -> Contest | None:
    """Ranks the finished groups by time to target when any reached it, else by seconds per sample."""
    return _contest(summary.groups, summary.target)


def _contest(groups: Sequence[Group], target: str | None) -> Contest | None:
    of: Of = "time_to_target" if any(group.reached for group in groups) else "time_to_samples"
    ranked = sorted(groups, key=lambda group: seconds(group, of))
    if not ranked:
        return None
    winner = ranked[0]
    rivals = _rivals(winner, ranked)
    return Contest(winner, rivals[0] if rivals else None, of, target)


def _rivals(winner: Group, ranked: Sequence[Group]) -> list[Group]:
    """The groups of other strategies; against one worker alone, those that really share the work, if any."""
    others = [group for group in ranked if group.strategy != winner.strategy and group.condition == winner.condition]
    sharing = [group for group in others if group.workers > 1] if winner.workers == 1 else []
    return sharing or [group for group in others if not group.baseline] or others


def seconds(group: Group, of: Of) -> float:
    """The time that groups are ranked by."""
    return group.time_to_target_s if of == "time_to_target" else float(group.seconds_per_sample.mean())


def headline(summary: Summary) -> list[str]:
    """The answer as sentences: who wins, why, what more workers buy, and whether to believe it."""
    outcome = contest(summary)
    if outcome is None:
        return ["No trial finished, so there is nothing to compare."]
    told = [*_answers(summary, outcome), *_switches(summary), _gain(summary, outcome.winner)]
    told += [growth for curve in summary.curves if (growth := _last(curve)) not in told]
    told += [f"{foretold(grown)}."] if (grown := [curve for curve in summary.curves if curve.foretold]) else []
    return [sentence(each) for each in (*told, _trust(summary)) if each]


def _answers(summary: Summary, outcome: Contest) -> list[str]:
    """Winner, reason and finding in the order in which what was swept asks for them."""
    missed = f"No strategy reached {outcome.target}; " if outcome.target and outcome.of == "time_to_samples" else ""
    wins = f"{missed}{outcome.verdict}."
    if finding(summary):
        worst = _under_the_worst(summary)
        return [_conditions(summary, worst), _why(summary, worst or outcome), wins]
    if len(summary.strategies) == 1 and len(summary.curves) == 1:
        return [_last(summary.curves[0]), wins, _why(summary, outcome)]
    return [wins, _steps(summary, outcome.winner.condition), _why(summary, outcome)]


def _switches(summary: Summary) -> list[str]:
    """For every switching strategy: whether it switched, and whether that paid; told of the median repeat."""
    sentences = []
    for group in {group.strategy: group for group in summary.groups}.values():  # on as many workers as were tried
        found = [trial.switch for trial in group.trials if trial.switch]
        if not found:
            continue
        often = f" ({how_often(found)})" if how_often(found) else ""
        sentences.append(f"{_where(group)}: {switch_told(typical(found), group.workers)}{often}.")
    return sentences


def _under_the_worst(summary: Summary) -> Contest | None:
    """The contest under the last condition of the finding; None where only one strategy meets it."""
    last = effects(ladders(summary))[0].after.condition
    met = [group for group in summary.groups if group.condition == last and not group.baseline]
    found = _contest(met, summary.target)
    return found if found and found.rival else None


def _conditions(summary: Summary, worst: Contest | None) -> str:
    """What conditions cost, and who is fastest under the one that costs most."""
    told = finding(summary)
    if worst is None or worst.rival is None:
        return f"{told}."
    under, first = worst.winner.condition, worst.winner.strategy
    if worst.tied:
        return f"{told}; with {under}, {first} and {worst.rival.strategy} are too close to call."
    feat = f"reaches {worst.target} first" if worst.of == "time_to_target" else "is fastest"
    return f"{told}; with {under}, {first} {feat}."


def _steps(summary: Summary, condition: str) -> str:
    """How the step grows from the fewest to the most workers, as it does when each has a batch of its own."""
    own = [group for group in summary.groups if group.condition == condition and not group.baseline and group.step_s]
    if not own:
        return ""
    fewest, most = min(group.workers for group in own), max(group.workers for group in own)
    steps_s = {(group.strategy, group.workers): group.step_s or 0.0 for group in own}
    both = [name for name in summary.strategies if {(name, fewest), (name, most)} <= steps_s.keys()]
    grown = {name: steps_s[name, most] / steps_s[name, fewest] for name in both}
    if fewest == most or max(grown.values(), default=1.0) < CAUSE:
        return ""
    first, *others = sorted(grown, key=lambda name: -grown[name])
    rest = "".join(f", of {name} {number(grown[name])}" for name in others)
    return f"From {fewest} to {workers(most)}, a step of {first} grows {number(grown[first])} times{rest}."


def _last(curve: Curve) -> str:
    """What the last doubling of workers buys, or from where on more do not pay; for curves of three points or more."""
    if len(curve.points) < LADDER:
        return ""
    before, last = curve.points[-2:]
    best = max(curve.points, key=lambda point: point.speedup)
    if best.workers < last.workers:
        loss = best.speedup / last.speedup
        pay = "does" if best.workers == 1 else "do"
        enough = f"more than {workers(best.workers)} {pay} not pay"
        return f"{curve.called}: {enough}; {last.workers} take {number(loss)} times as long."
    gain = last.speedup / before.speedup
    return f"{curve.called}: from {before.workers} to {workers(last.workers)} it gains {number(gain)} times."


def foretold(found: Sequence[Curve]) -> str:
    """As in "ring: 9.13 times on 16 workers, the closed form says 9.40"; by samples per second, on the most workers.

    Told of the curve that grows most, then of the one that its form tells worst.
    """
    most = max(found, key=lambda curve: curve.points[-1].rate_speedup)
    worst = max(found, key=_misjudged)
    return "; ".join(_beside_form(curve) for curve in ([most] if most is worst else [most, worst]))


def _beside_form(curve: Curve) -> str:
    last = curve.points[-1]
    grown, told = number(last.rate_speedup), number(last.predicted_speedup)
    return f"{curve.called}: {grown} times on {workers(last.workers)}, the closed form says {told}"


def _misjudged(curve: Curve) -> float:
    """How far the form is off on the most workers, as a ratio above 1."""
    ratio = curve.points[-1].rate_speedup / (curve.points[-1].predicted_speedup or math.nan)
    return max(ratio, 1 / ratio)


def _why(summary: Summary, outcome: Contest) -> str:
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


def _peers(summary: Summary, outcome: Contest) -> list[Group]:
    """The other strategies on as many workers; the rival where there are none or the winner works alone."""
    winner = outcome.winner
    peers = [
        group
        for group in summary.groups
        if group.strategy != winner.strategy and not group.baseline and winner.workers > 1
        if (group.condition, group.workers) == (winner.condition, winner.workers)
    ]
    return peers or ([outcome.rival] if outcome.rival else [])


def _phases(winner: Group, peers: Sequence[Group]) -> str:
    """As in "ring exchanges for 5.91 ms per step, ps_bsp for 31.4 ms"; empty when the winner leads in none by much."""
    gaps = {
        phase: max(peer.phase_s.get(phase, 0.0) for peer in peers) - winner.phase_s.get(phase, 0.0) for phase in VERBS
    }
    phase = max(gaps, key=lambda name: gaps[name])
    if gaps[phase] <= (CAUSE - 1) * winner.phase_s.get(phase, 0.0):
        return ""
    ranked = sorted(peers, key=lambda peer: peer.phase_s.get(phase, 0.0))
    shown = peers if len(peers) <= FEW else [ranked[0], ranked[-1]]
    others = ", ".join(f"{_name(peer, winner)} for {_phase_ms(peer, phase)} ms" for peer in shown)
    rest = "" if len(peers) <= FEW else ", the others for times in between"
    return f"{_name(winner, winner)} {VERBS[phase]} {_phase_ms(winner, phase)} ms per step, {others}{rest}"


def _phase_ms(group: Group, phase: str) -> str:
    return number(1000 * group.phase_s.get(phase, 0.0))


def _learned(winner: Group, peers: Sequence[Group]) -> list[str]:
    """Of few peers every word; of many, who misses the target and who needs most samples."""
    if len(peers) <= FEW:
        return [_learning(winner, peer) for peer in peers]
    reached = [peer for peer in peers if peer.reached]
    missed = [_name(peer, winner) for peer in peers if not peer.reached]
    hungriest = sorted(reached, key=lambda peer: -peer.samples_to_target)[:1]
    who = f"{', '.join(missed)} miss{'es' * (len(missed) == 1)} the target" if missed else ""
    return [*(_learning(winner, peer) for peer in hungriest), who]


def _learning(winner: Group, peer: Group) -> str:
    """Who needs more samples, and how stale its gradients are; empty when both need about as many."""
    factor = peer.samples_to_target / winner.samples_to_target
    if not math.isfinite(factor):
        return f"{_name(peer, winner)} misses the target"
    if 1 / CAUSE <= factor <= CAUSE:
        return ""
    hungry, thrifty = (peer, winner) if factor > 1 else (winner, peer)
    times = max(factor, 1 / factor)
    return f"{_name(hungry, winner)} needs {times:.1f} times the samples of {_name(thrifty, winner)}{_stale(hungry)}"


def _stale(group: Group) -> str:
    means = [trial.staleness["mean"] for trial in group.trials if trial.staleness]
    return f" (its gradients are {sum(means) / len(means):.1f} updates old)" if means and max(means) > 0 else ""


def _name(group: Group, winner: Group) -> str:
    if group.baseline:
        return "one worker alone"
    return group.strategy if group.workers == winner.workers else f"{group.strategy} on {group.workers}"


def _gain(summary: Summary, winner: Group) -> str:
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
        base = f"{curve.base.strategy} on {workers(curve.base.workers)}"
        return f"Speedup over {base}: {point.speedup:.1f}, that is {share(point.efficiency)} efficiency ({split})."
    return ""


def _trust(summary: Summary) -> str:
    told = {
        Level.VALID: "",
        Level.DEGRADED: "Some trials are degraded; read their reasons below.",
        Level.INVALID: "Some trials are invalid: take this answer as unproven until their reasons are mended.",
    }
    repeats = max(len(group.trials) for group in summary.groups)
    once = "Each trial ran once: differences of a few percent mean nothing yet." if repeats == 1 else ""
    return " ".join(filter(None, [told[summary.verdict], once]))


def _where(group: Group) -> str:
    kind = "one worker alone" if group.baseline else f"{group.strategy} on {workers(group.workers)}"
    return f"{kind} ({group.condition})" if group.condition else kind


def _ranges_overlap(winner: Group, rival: Group, of: Of) -> bool:
    """Whether the slowest repeat of the winner is slower than the fastest of the rival."""
    if len(winner.trials) == 1 or len(rival.trials) == 1:
        return False
    ours, theirs = (
        each.times_to_target_s if of == "time_to_target" else each.seconds_per_sample for each in (winner, rival)
    )
    return bool(ours.max() >= theirs.min())
