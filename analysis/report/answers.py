"""What was varied is what was asked. The first sentence of a report, by the kind of question that a scenario puts.

Every kind is a function of the numbers that gives a sentence, or nothing where the run varied something else; the first
of `KINDS` that speaks is the answer. No kind knows a scenario by its name. Where none speaks, the fastest strategy is
the answer (`analysis.report.headline`).
"""

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from analysis.metrics.speedup import ONE, Curve, Point
from analysis.metrics.switch import how_often, repeats, typical
from analysis.metrics.switch import told as switch_told
from analysis.report.wording import listed, number, share, workers
from analysis.results.result import TrialGroup, choose_time_metric
from analysis.results.summary import RunSummary
from analysis.results.swept_conditions import groups_across_conditions, seconds_per_sample, shorten_conditions
from analysis.statistics.guard import CHANCE
from analysis.statistics.holm import holm
from analysis.statistics.paired import student

TIE = 1.05  # a ratio of times that single runs cannot tell from 1: MLPerf's runs spread by about 7 %
LADDER = 3  # points of a curve from which on its last step says something
FEW = 3  # of what a sentence lists in full; of more it names the ends
QUALITY, LOSS = "accuracy", "loss"  # metrics of models that classify; more of the first is better
CAUSE = 1.1  # a ratio below which a phase or a need for samples explains nothing
SLIGHT = 0.01  # share of efficiency that is not worth a word

Kind = Callable[[RunSummary], str]


def answer(summary: RunSummary) -> str:
    """The sentence of the first kind that has one, without its full stop; empty where none has."""
    return next((told for kind in KINDS if (told := kind(summary))), "")


def switching(summary: RunSummary) -> str:
    """Does it pay to switch? Said of the switch itself, then how long every strategy takes on as many workers.

    Among many strategies a switch is one of them, and which is fastest is the question.
    """
    switched = [group for group in summary.groups if any(trial.switch for trial in group.trials)]
    if not switched or len(summary.conditions) > 1 or len(summary.strategies) > FEW:
        return ""
    first = max(reversed(switched), key=lambda group: group.workers)  # of equals the last
    rivals = [group for group in summary.groups if group.workers == first.workers and not group.is_baseline]
    return "; ".join(filter(None, [switch_of(first), _times(rivals, summary.target)]))


def as_good(summary: RunSummary) -> str:
    """How little is enough? One strategy under several conditions, as long in each: which end as good as the best."""
    found = groups_across_conditions(summary)
    if summary.target or len(found) != 1 or len(summary.strategies) != 1:
        return ""
    ladder = [group for group in found[0] if all(QUALITY in trial.final for trial in group.trials)]
    if len(ladder) < len(found[0]) or any(len(group.trials) == 1 or not seconds_per_sample(group) for group in ladder):
        return ""
    best = max(ladder, key=_quality)
    alike = _alike(best, ladder)
    others = listed(shorten_conditions(group.condition for group in alike if group is not best))
    cheapest = min(alike, key=seconds_per_sample)
    told = f"{best.strategy} ends at {QUALITY} {number(_quality(best))} with {best.condition}"
    if cheapest is best:
        faster = any(seconds_per_sample(group) < seconds_per_sample(best) for group in ladder)
        return f"{told}; {'repeats tell it from every other that' if faster else 'no other'} takes less time"
    fewest = min(len(group.trials) for group in alike)
    alike_told = f"{fewest} repeats can't tell {others} from it (p ≥ {CHANCE:g})"
    saved = f"the same samples take {share(seconds_per_sample(cheapest) / seconds_per_sample(best))} of its time"
    return f"{told}; {alike_told}, and with {cheapest.condition} ({number(_quality(cheapest))}) {saved}"


def to_target(summary: RunSummary) -> str:
    """How much of something is best? One strategy under several conditions, on the way to a target."""
    found = groups_across_conditions(summary)
    if (
        not summary.target
        or len(found) != 1
        or len(found[0]) < LADDER
        or not any(group.has_reached_target for group in found[0])
    ):
        return ""
    names = shorten_conditions(group.condition for group in found[0])
    parts = [f"{_taken(group.time_to_target_s)} with {name}" for name, group in zip(names, found[0], strict=True)]
    return f"to {summary.target} {found[0][0].strategy} {', '.join(parts)}"


def agreement(summary: RunSummary) -> str:
    """Do strategies agree? Judged by anything but how often a model is right, the spread at the end tells."""
    metric = (summary.target or QUALITY).split()[0]
    told = [trial for trial in summary.trials if trial.is_finished and metric in trial.final]
    ends = [trial.final[metric] for trial in told]
    if metric in (QUALITY, LOSS) or len(summary.strategies) == 1 or len(summary.conditions) > 1 or not ends:
        return ""
    reached = sum(trial.time_to_target_s is not None for trial in told)
    spread = f"they end at {metric} {number(min(ends))} to {number(max(ends))}"
    return f"{reached} of {len(ends)} trials reach {summary.target}; {spread}"


def published(summary: RunSummary) -> str:
    """Does it scale as others found, or as closed forms say?"""
    told = [curve for curve in summary.curves if curve.foretold]
    return foretold(told) if summary.published and told else ""


def efficiencies(summary: RunSummary) -> str:
    """Where does efficiency go under each condition? One strategy on many workers under several of them."""
    grown = [curve for curve in summary.curves if len(curve.points) >= LADDER]
    if len(summary.strategies) != 1 or len({curve.condition for curve in grown}) < 2:  # noqa: PLR2004 -- to compare
        return ""
    sizes = {curve.points[-1].workers for curve in grown}
    where = f"on {workers(*sizes)}" if len(sizes) == 1 else "on the most workers that ran under each"
    parts = "; ".join(_kept(curve, sizes, summary.target) for curve in grown)
    return f"{where}, {grown[0].strategy} keeps of its efficiency {parts}"


def everywhere(summary: RunSummary) -> str:
    """Which is the best in every case? Several strategies under several conditions, on several numbers of workers."""
    members = [group for group in summary.groups if not group.is_baseline]
    cases = {(group.condition, group.workers): list[TrialGroup]() for group in members}
    for group in members:
        cases[group.condition, group.workers].append(group)
    contests = [rows for rows in cases.values() if len(rows) > 1]
    if len({group.workers for group in members}) <= 1 or len(summary.conditions) == 1 or len(contests) < len(cases):
        return ""
    if not all(seconds_per_sample(group) for group in members):
        return ""  # nothing took time
    always = set.intersection(*(_first(rows) for rows in contests))
    close = [name for name in summary.strategies if name in always]
    told = f"within {share(TIE - 1)} of the fastest in all {len(contests)} cases"
    slowest = max((_behind(rows) for rows in contests), key=lambda each: each[1])
    return f"{listed(close) or 'no strategy'} {'are' if len(close) > 1 else 'is'} {told}; {_slow(slowest)}"


def step_growth(summary: RunSummary) -> str:
    """How does a step grow? Many sizes in lockstep, no target, and the same batch for every worker on all of them."""
    members = [group for group in summary.groups if not group.is_baseline]
    trials = [trial for group in members for trial in group.trials]
    if summary.target or len({group.workers for group in members}) < LADDER or len(summary.conditions) > 1:
        return ""
    own = [trial.samples / (trial.steps * trial.workers) if trial.steps else np.nan for trial in trials]
    if any(trial.saturates_at for trial in trials) or not max(own) <= TIE * min(own):
        return ""
    return steps_grown(summary, members[0].condition)


def growth(summary: RunSummary) -> str:
    """From how many workers on do more gain nothing? Many sizes and no target: what each curve comes to."""
    grown = [curve for curve in summary.curves if len(curve.points) >= LADDER]
    if summary.target or not grown or len(grown) > FEW:
        return ""
    return "; ".join(_grows(curve, _filled(curve, summary)) for curve in grown)


def kept(summary: RunSummary) -> str:
    """What does sharing the work cost? One number of workers and no target: the efficiency that is left of one's."""
    alone = [curve for curve in summary.curves if curve.base_called == ONE and len(curve.points) == 1]
    sizes = {curve.points[0].workers for curve in alone}
    if summary.target or len(sizes) != 1 or len(alone) < len(summary.curves) or len(summary.conditions) > 1:
        return ""
    ranked = sorted(alone, key=lambda curve: -curve.points[0].efficiency)
    shown = ranked if len(ranked) <= FEW else [ranked[0], ranked[-1]]
    parts = listed(f"{curve.called} keeps {share(curve.points[0].efficiency, 1)}" for curve in shown)
    rest = "" if len(ranked) <= FEW else ", the others what lies in between,"
    return f"on {workers(*sizes)}, {parts}{rest} of the efficiency of {ONE}"


def ended(summary: RunSummary) -> str:
    """Does everything run? Nothing is varied, there is nothing to reach and nothing to compare with."""
    varied = len(summary.conditions) > 1 or len({trial.workers for trial in summary.trials}) > 1
    if varied or summary.target or any(trial.baseline for trial in summary.trials) or len(summary.strategies) == 1:
        return ""
    done = [trial for trial in summary.trials if trial.is_finished]
    if len(done) < len(summary.trials) or summary.not_run or summary.damage:
        return f"{len(done)} of {len(summary.trials) + len(summary.not_run)} trials ran to their end"
    return f"all {len(done)} trials ran to their end: {listed(summary.strategies)}"


KINDS: tuple[Kind, ...] = (
    switching,
    as_good,
    to_target,
    agreement,
    published,
    efficiencies,
    everywhere,
    step_growth,
    growth,
    kept,
    ended,
)


def switch_of(group: TrialGroup) -> str:
    """Whether a group's switch came and paid; of repeats the median, so called."""
    found = [trial.switch for trial in group.trials if trial.switch]
    noted = "; ".join(filter(None, (repeats(found), how_often(found))))
    return f"{group.description}: {switch_told(typical(found), group.workers)} ({noted})"


def last_step(curve: Curve) -> str:
    """What the last step to more workers buys, or from where on more do not pay; for curves of three points or more."""
    if len(curve.points) < LADDER:
        return ""
    before, last = curve.points[-2:]
    best = max(curve.points, key=lambda point: point.speedup)
    if best.workers < last.workers:
        pay = "does" if best.workers == 1 else "do"
        loss = number(best.speedup / last.speedup)
        return (
            f"{curve.called}: more than {workers(best.workers)} {pay} not pay; {last.workers} take {loss} times as long"
        )
    gain = number(last.speedup / before.speedup)
    return f"{curve.called}: from {before.workers} to {workers(last.workers)} it gets {gain} times as fast"


def steps_grown(summary: RunSummary, condition: str) -> str:
    """How the step grows from the fewest to the most workers, as it does when each has a batch of its own."""
    own = [
        group
        for group in summary.groups
        if group.condition == condition and not group.is_baseline and group.median_step_s
    ]
    if not own:
        return ""
    fewest, most = min(group.workers for group in own), max(group.workers for group in own)
    steps_s = {(group.strategy, group.workers): group.median_step_s or 0.0 for group in own}
    both = [name for name in summary.strategies if {(name, fewest), (name, most)} <= steps_s.keys()]
    grown = {name: steps_s[name, most] / steps_s[name, fewest] for name in both}
    if fewest == most or max(grown.values(), default=1.0) < CAUSE:
        return ""
    first, *others = sorted(grown, key=lambda name: -grown[name])
    rest = "".join(f", of {name} {number(grown[name])}" for name in others)
    return f"from {fewest} to {workers(most)}, a step of {first} grows {number(grown[first])} times{rest}"


def foretold(found: Sequence[Curve]) -> str:
    """As in "ring on 16 workers: 9.13 times the samples per second of one worker alone, the closed form says 9.40".

    Told of the curve that grows most, then of the one that its form tells worst.
    """
    most = max(found, key=lambda curve: curve.points[-1].rate_speedup)
    worst = max(found, key=_misjudged)
    return "; ".join(_beside_form(curve) for curve in ([most] if most is worst else [most, worst]))


def lost(point: Point) -> str:
    """Which factor of efficiency costs more."""
    statistical = point.statistical_efficiency
    if statistical is None or statistical > 1 - SLIGHT:
        return "all of the loss in hardware"
    if point.hardware_efficiency <= statistical:
        return f"mostly lost in hardware ({share(point.hardware_efficiency)}; statistical {share(statistical)})"
    return f"mostly lost in learning ({share(statistical)}; hardware {share(point.hardware_efficiency)})"


def _beside_form(curve: Curve) -> str:
    last = curve.points[-1]
    grown, told = number(last.rate_speedup), number(last.predicted_speedup)
    where = f"{curve.called} on {workers(last.workers)}"
    return f"{where}: {grown} times the samples per second of {curve.base_called}, the closed form says {told}"


def _misjudged(curve: Curve) -> float:
    """How far the form is off on the most workers, as a ratio above 1."""
    ratio = curve.points[-1].rate_speedup / (curve.points[-1].predicted_speedup or np.nan)
    return float(max(ratio, 1 / ratio))


def _times(rivals: Sequence[TrialGroup], target: str | None) -> str:
    """What each takes, the fastest first; who missed the target last."""
    if len(rivals) == 1:
        return ""
    of = choose_time_metric(rivals)
    ranked = sorted(rivals, key=lambda group: group.mean_time_s(of))
    unit, factor = (f"to {target}", 1.0) if of == "time_to_target" else ("for 1,000 samples", 1e3)
    taken = [(group.strategy, factor * group.mean_time_s(of)) for group in ranked]
    return f"{unit} {', '.join(f'{name} {_taken(time_s)}' for name, time_s in taken)}"


def _taken(seconds: float) -> str:
    return f"takes {number(seconds)} s" if np.isfinite(seconds) else "misses it"


def _quality(group: TrialGroup) -> float:
    return float(np.mean([trial.final[QUALITY] for trial in group.trials]))


def _alike(best: TrialGroup, ladder: Sequence[TrialGroup]) -> list[TrialGroup]:
    """Those whose quality over the same seeds can't be told from the best, p adjusted for all (Holm)."""
    others = [group for group in ladder if group is not best]
    chances = holm(np.array([_chance(best, each) for each in others]))
    return [group for group in ladder if group is best or chances[others.index(group)] >= CHANCE]


def _chance(best: TrialGroup, other: TrialGroup) -> float:
    """That two qualities differ so by their seeds alone; of the seeds that ended in both, for a trial may have failed.

    Differences are tested, not ratios: a quality may be zero.
    """
    ours, theirs = ({trial.seed: trial.final[QUALITY] for trial in group.trials} for group in (best, other))
    return student(np.array([ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]))


def _kept(curve: Curve, sizes: Collection[int], target: str | None) -> str:
    """As in "26% with batch fixed, all of the loss in hardware".

    Each with its size where they differ. Where some size missed the target, its samples say nothing of learning.
    """
    last = curve.points[-1]
    whole = last.efficiency >= 1 - SLIGHT
    size = f" on {last.workers}" if len(sizes) > 1 else ""
    told = f"{share(last.efficiency)} with {curve.condition}{size}"
    if target and curve.of == "time_to_samples":
        return f"{told} by samples alone, for not every size reaches the target"
    return told if whole else f"{told}, {lost(last)}"


def _first(rows: Sequence[TrialGroup]) -> set[str]:
    """Who is within a tie of the fastest."""
    of = choose_time_metric(rows)
    best = min(group.mean_time_s(of) for group in rows)
    return {group.strategy for group in rows if group.mean_time_s(of) <= TIE * best}


def _behind(rows: Sequence[TrialGroup]) -> tuple[TrialGroup, float]:
    """The slowest, and how many times as long it takes as the fastest."""
    of = choose_time_metric(rows)
    ranked = sorted(rows, key=lambda group: group.mean_time_s(of))
    return ranked[-1], ranked[-1].mean_time_s(of) / ranked[0].mean_time_s(of) if ranked[0].mean_time_s(of) else np.nan


def _slow(found: tuple[TrialGroup, float]) -> str:
    group, ratio = found
    if not np.isfinite(ratio):
        return f"{group.description} never reaches the target"
    return f"{group.description} takes {number(ratio)} times as long as the fastest there"


def _grows(curve: Curve, filled: float | None) -> str:
    told = last_step(curve)
    return told if filled is None else f"{told} (the closed form: {number(filled)} fill its servers' links)"


def _filled(curve: Curve, summary: RunSummary) -> float | None:
    """Workers that fill the servers' links, as planned for the most that were tried."""
    most = curve.points[-1].workers
    trials = (each for each in summary.trials if (each.strategy, each.condition) == (curve.strategy, curve.condition))
    return next((trial.saturates_at for trial in trials if trial.workers == most), None)


def in_new(told: str, before: Iterable[str]) -> bool:
    """Whether a sentence says what none before it does."""
    body = told.rstrip(".").lower()
    return bool(body) and not any(body in each.lower() for each in before)
