"""Which strategy wins, on how many workers, and why? Answered in a few sentences from the numbers alone."""

import math
from dataclasses import dataclass

from analysis.checks.verdict import Level
from analysis.metrics.speedup import Of
from analysis.result import Group
from analysis.summary import Summary

# Below this ratio two times count as equal when nothing was repeated; run-to-run spread of MLPerf results is about 7 %.
TIE = 1.05


@dataclass(frozen=True)
class Contest:
    """The best strategy against the best of the others."""

    winner: Group
    rival: Group | None  # the best group of another strategy; None when there is only one strategy
    of: Of
    target: str | None

    @property
    def ratio(self) -> float:
        """Time of the rival / time of the winner; infinite when the rival missed the target."""
        return seconds(self.rival, self.of) / seconds(self.winner, self.of) if self.rival else 1.0

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
        if self.rival is None:
            return text
        if not math.isfinite(self.ratio):
            return f"{text}; no other strategy does"
        if self.tied:
            return f"{text}, too close to call against {_where(self.rival)} ({seconds(self.rival, self.of):.3g} s)"
        return f"{text}, {self.ratio:.2g} times faster than {_where(self.rival)}"

    @property
    def _feat(self) -> str:
        if self.of == "time_to_target":
            return f"reaches {self.target} first, in {self.winner.time_to_target_s:.3g} s"
        return f"trains fastest, {1 / seconds(self.winner, self.of):.4g} samples per second"


def contest(summary: Summary) -> Contest | None:
    """Ranks the finished groups by time to target when any reached it, else by seconds per sample."""
    found = summary.groups
    of: Of = "time_to_target" if any(group.reached for group in found) else "time_to_samples"
    ranked = sorted(found, key=lambda group: seconds(group, of))
    if not ranked:
        return None
    winner = ranked[0]
    others = [group for group in ranked if group.strategy != winner.strategy and group.condition == winner.condition]
    rivals = [group for group in others if not group.baseline] or others
    return Contest(winner, rivals[0] if rivals else None, of, summary.target)


def seconds(group: Group, of: Of) -> float:
    """The time that groups are ranked by."""
    return group.time_to_target_s if of == "time_to_target" else float(group.seconds_per_sample.mean())


def headline(summary: Summary) -> list[str]:
    """The answer as sentences: who wins, why, what one more worker buys, and whether to believe it."""
    outcome = contest(summary)
    if outcome is None:
        return ["No trial finished, so there is nothing to compare."]
    sentences = [_missed(outcome), f"{outcome.verdict}.", _why(outcome), _gain(summary, outcome), _trust(summary)]
    return [sentence[0].upper() + sentence[1:] for sentence in sentences if sentence]


def _missed(outcome: Contest) -> str:
    return f"No strategy reached {outcome.target}." if outcome.target and outcome.of == "time_to_samples" else ""


def _why(outcome: Contest) -> str:
    """The larger of the two factors of the ratio: seconds per sample, or samples needed."""
    winner, rival = outcome.winner, outcome.rival
    if rival is None or outcome.tied:
        return ""
    speed = float(rival.seconds_per_sample.mean() / winner.seconds_per_sample.mean())
    learning = rival.samples_to_target / winner.samples_to_target if outcome.of == "time_to_target" else 1.0
    reasons = [(speed, _speed_reason(winner, rival, speed)), (learning, _learning_reason(winner, rival, learning))]
    told = [reason for factor, reason in sorted(reasons, reverse=True) if factor > TIE]
    against = [_against(winner, rival, speed, learning)] if told else []
    return f"The reason: {' and '.join([*told])}{''.join(against)}." if told else ""


def _speed_reason(winner: Group, rival: Group, speed: float) -> str:
    """Names the phase in which the rival loses most time per step; different batches per step are compared as rates."""
    gaps = {phase: rival.phase_s.get(phase, 0) - spent for phase, spent in winner.phase_s.items()}
    worst = max(gaps, key=lambda phase: gaps[phase], default=None)
    if worst is None or gaps[worst] <= 0:
        return f"{winner.strategy} trains {speed:.2g} times more samples per second"
    ours, theirs = 1000 * winner.phase_s[worst], 1000 * rival.phase_s[worst]
    verb = {"exchange": "exchanges for", "wait": "waits", "compute": "computes for"}.get(worst, f"spends on {worst}")
    return f"{winner.strategy} {verb} {ours:.3g} ms per step where {rival.strategy} takes {theirs:.3g} ms"


def _learning_reason(winner: Group, rival: Group, learning: float) -> str:
    if not math.isfinite(learning):
        return f"{rival.strategy} misses the target"
    return f"{rival.strategy} needs {learning:.2g} times the samples of {winner.strategy}{_stale(rival)}"


def _against(winner: Group, rival: Group, speed: float, learning: float) -> str:
    """What speaks for the rival, when something does."""
    if speed * TIE < 1:
        return f", although {rival.strategy} trains {1 / speed:.2g} times more samples per second"
    if learning * TIE < 1:
        return f", although {winner.strategy} needs {1 / learning:.2g} times the samples{_stale(winner)}"
    return ""


def _stale(group: Group) -> str:
    means = [trial.staleness["mean"] for trial in group.trials if trial.staleness]
    return f" (its gradients are {sum(means) / len(means):.1f} updates old)" if means and max(means) > 0 else ""


def _gain(summary: Summary, outcome: Contest) -> str:
    """Speedup and efficiency of the winner, with the split."""
    winner = outcome.winner
    points = [
        (curve, point)
        for curve in summary.curves
        for point in curve.points
        if (curve.strategy, curve.condition, point.workers) == (winner.strategy, winner.condition, winner.workers)
    ]
    if not points or points[0][1].workers == points[0][0].base.workers:
        return "No number of workers beats the single one here." if winner.baseline or winner.workers == 1 else ""
    curve, point = points[0]
    split = f" (hardware {point.hardware_efficiency:.0%}"
    split += f", statistical {point.statistical_efficiency:.0%})" if point.statistical_efficiency else ")"
    base = f"{curve.base.strategy} on {curve.base.workers}"
    return f"That is {point.speedup:.2g} times faster than {base}: {point.efficiency:.0%} efficiency{split}."


def _trust(summary: Summary) -> str:
    told = {
        Level.VALID: "",
        Level.DEGRADED: "Some trials are degraded; read their reasons below.",
        Level.INVALID: "Some trials are invalid, so treat this answer as unproven until their reasons are mended.",
    }
    repeats = max(len(group.trials) for group in summary.groups)
    once = "Each trial ran once: differences of a few percent mean nothing yet." if repeats == 1 else ""
    return " ".join(filter(None, [told[summary.verdict], once]))


def _where(group: Group) -> str:
    kind = f"{group.strategy} on {group.workers} worker{'s' * (group.workers > 1)}"
    return f"{kind} ({group.condition})" if group.condition else kind


def _ranges_overlap(winner: Group, rival: Group, of: Of) -> bool:
    """Whether the slowest repeat of the winner is slower than the fastest of the rival."""
    if len(winner.trials) == 1 or len(rival.trials) == 1:
        return False
    ours, theirs = (
        each.times_to_target_s if of == "time_to_target" else each.seconds_per_sample for each in (winner, rival)
    )
    return bool(ours.max() >= theirs.min())
