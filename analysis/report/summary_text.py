"""A run in a few sentences with intervals: who wins from how many workers on, where efficiency ends, what was left out.

Every number is computed: ratios are of olympic means, intervals 95 % BCa over the repeats of both sides, paired by seed
where both ran the same (`analysis.statistics`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile

import numpy as np

from analysis.metrics.comparison import Difference, difference_of, guards, unguarded
from analysis.metrics.speedup import Curve
from analysis.report.wording import number, sentence, share, workers
from analysis.results.excluded_trials import describe_excluded_trials
from analysis.results.result import TIMES_SIGN, TimeMetric, TrialGroup, choose_time_metric, have_same_seeds
from analysis.results.summary import RunSummary
from analysis.statistics.bootstrap import Interval, ratio_interval
from analysis.statistics.guard import CHANCE

ENOUGH = 0.6  # efficiency that platform engineers ask for
LEAST_CHANCE = 0.001  # smaller ones are not told apart: they hang on the shape of a distribution's tail
MOST = 6  # sentences of a kind: of more, the first


@dataclass(frozen=True)
class Win:
    """The fastest strategy on one number of workers, and by how much it beats the next."""

    workers: int
    winner: str
    ratio: float  # time of the next / time of the winner; infinite where no other reaches the target
    interval: Interval | None  # None where nothing was repeated
    test: Difference | None  # of the two, paired by seed; None where they share fewer than two
    shared: int  # seeds that both ran
    of: TimeMetric

    @property
    def p_value(self) -> float | None:
        """Of no difference, adjusted for all pairs of the run (Holm)."""
        return self.test.p_adjusted if self.test else None

    @property
    def sure(self) -> bool:
        """Whether repeats tell the two apart. Its interval can't say: it is of a pair picked for being far apart."""
        return self.p_value is not None and self.p_value < CHANCE


def brief(summary: RunSummary) -> list[str]:
    """The sentences: winners by number of workers, efficiencies, then what is missing."""
    won = [_wins(condition, wins(summary, condition), summary.target) for condition in summary.conditions]
    fallen = [falls(curve, summary.target) for curve in summary.curves if len(curve.points) > 1]
    told = [each for each in won if each][:MOST] + [each for each in fallen if each][:MOST]
    told += [_told_apart(summary), _suspicious(summary), _unguarded(summary), *describe_excluded_trials(summary)]
    return [sentence(each) for each in told if each]


def wins(summary: RunSummary, condition: str) -> list[Win]:
    """Who is fastest on each number of workers that two strategies or more ran on, few workers first."""
    members = [group for group in summary.groups if group.condition == condition and not group.is_baseline]
    members.sort(key=lambda group: group.workers)
    rows = [list(rows) for _, rows in groupby(members, key=lambda group: group.workers)]
    return [win for row in rows if len(row) > 1 and (win := _win(row, summary.differences)) is not None]


def falls(curve: Curve, target: str | None = None) -> str:
    """From which number of workers on a curve is below ENOUGH; a crossing lies between two that were measured."""
    called = f"{curve.called}{_by(curve.of, target)}"
    above = list(takewhile(lambda point: point.efficiency >= ENOUGH, curve.points))
    if len(above) == len(curve.points):
        last = curve.points[-1]
        return f"{called} keeps {share(last.efficiency)} efficiency up to {workers(last.workers)}"
    first = curve.points[len(above)]
    before = f" (on {above[-1].workers} it is {share(above[-1].efficiency)})" if above else ""
    span = _per_worker(first.speedup_ci, first.workers / curve.base.workers)
    fallen = f"{called}: efficiency falls below {share(ENOUGH)} at {workers(first.workers)}"
    return f"{fallen}, to {share(first.efficiency)}{span}{before}"


def _win(row: Sequence[TrialGroup], found: Sequence[Difference]) -> Win | None:
    """None where nothing took time, or nobody knows how much: such a size has no winner."""
    of = choose_time_metric(row)
    first, second = sorted(row, key=lambda group: group.mean_time_s(of))[:2]
    ours, theirs = first.times_s(of), second.times_s(of)
    if not np.isfinite(first.mean_time_s(of)) or not (ours > 0).all() or not (theirs > 0).all():
        return None
    test, shared = difference_of(first, second, found), len(first.seeds & second.seeds)
    interval = ratio_interval(theirs, ours, paired=have_same_seeds((first, second)))
    return Win(
        first.workers, first.strategy, second.mean_time_s(of) / first.mean_time_s(of), interval, test, shared, of
    )


def _wins(condition: str, found: Sequence[Win], target: str | None) -> str:
    """As in "ring wins from 4 workers on, by 1.4× [1.3, 1.5] on 16; on 2, ps and ring can't be told apart"."""
    if not found:
        return ""
    last = found[-1]
    tail = [*takewhile(lambda win: win.winner == last.winner and win.sure, reversed(found))]
    where = f" ({condition})" if condition else ""
    margin = f"{_margin(last)}{_chance(last.test)}{_by(last.of, target)}"
    others = {win.winner: win.workers for win in found[: len(found) - len(tail)] if win.sure}
    before = "".join(f"; {name} wins up to {count}" for name, count in others.items() if name != last.winner)
    if not tail:
        return f"{last.winner} is fastest on {workers(last.workers)}{where}, {margin}; {_doubt(last)}{before}"
    since = "from " + workers(tail[-1].workers) + " on" if len(tail) > 1 else "on " + workers(last.workers)
    more = f" on {last.workers}" if len(tail) > 1 else ""
    return f"{last.winner} wins {since}{where}, {margin}{more}{before}"


def _margin(win: Win) -> str:
    """No number of times is as long as never."""
    if not np.isfinite(win.ratio):
        return "as no other reaches the target"
    return f"by {number(win.ratio)}{TIMES_SIGN}{_shown(win.interval)}"


def _by(of: TimeMetric, target: str | None) -> str:
    """Told where it is not the time to the target that everybody expects."""
    return " by time for the same samples" if target and of == "time_to_samples" else ""


def _doubt(win: Win) -> str:
    """Why the fastest does not win."""
    if win.interval is None:
        return "once each: no interval"
    if win.test is None:
        return "one shared seed: no test" if win.shared else "other seeds: no test"
    return "repeats do not tell it from the next"


def _chance(test: Difference | None) -> str:
    """With the number of pairs where some repeats have no partner."""
    if test is None:
        return ""
    p_value, over = test.p_adjusted, f" over {test.found.pairs} shared seeds" if test.partial else ""
    return f" (p = {p_value:.2g}{over})" if p_value >= LEAST_CHANCE else f" (p < {LEAST_CHANCE:g}{over})"


def _shown(found: Interval | None) -> str:
    return f" [{number(found[0])}, {number(found[1])}]" if found else ""


def _per_worker(found: Interval | None, ratio: float) -> str:
    return f" [{share(found[0] / ratio)}, {share(found[1] / ratio)}]" if found else ""


def _told_apart(summary: RunSummary) -> str:
    """How many pairs of strategies on as many workers differ, corrected for their number; empty without repeats."""
    found = summary.differences
    apart = sum(each.p_adjusted < CHANCE for each in found)
    pairs = f"{apart} of {len(found)} pair{'s' * (len(found) > 1)} of strategies"
    partial = sum(each.partial for each in found)
    some = f", {partial} over the seeds that both ran" if partial else ""
    return f"{pairs} can be told apart by their repeats (p < {CHANCE:g}, paired by seed{some}, Holm)" if found else ""


def _suspicious(summary: RunSummary) -> str:
    """Who learns from significantly fewer samples than one worker alone: a wrong divisor looks like that."""
    names = [name for name, found in guards(summary.groups).items() if found.suspicious]
    if not names:
        return ""
    need = "needs" if len(names) == 1 else "need"
    return f"{', '.join(names)} {need} significantly fewer samples than one worker alone (Holm): check for a bug"


def _unguarded(summary: RunSummary) -> str:
    """Why that could not be asked of all who reached the target."""
    lack = unguarded(summary.groups)
    some = " for all" if guards(summary.groups) else ""
    return f"guard against learning too well not run{some}: {lack}" if lack else ""
