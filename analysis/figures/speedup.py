"""How much faster does each strategy get with more workers?"""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from analysis.figures.base import Drawing, Run
from analysis.figures.drawing.balance import LEGEND, mark, rules_at
from analysis.figures.drawing.labels import at_right
from analysis.figures.drawing.style import BASELINE, canvas, colour, frame, lay_out, marker
from analysis.metrics.balance import BalancePoint
from analysis.metrics.speedup import ONE_WORKER, SpeedupCurve, SpeedupPoint
from analysis.report.wording import format_number
from analysis.results.result import TIMES_SIGN, TimeMetric
from analysis.results.summary import RunSummary

MOST_BASES = 6  # that a caption names
COLUMNS = 2  # panels in a row: more leaves no room for names at the lines


def speedup(run: Run) -> Drawing | None:
    """Log-log, one panel per condition, the ideal line dashed, 95 % intervals where runs were repeated."""
    found = [curve for curve in run.summary.curves if len(curve.points) > 1]
    if not found:
        return None
    conditions = list(dict.fromkeys(curve.condition for curve in found))
    columns = min(COLUMNS, len(conditions))
    rows = -(-len(conditions) // columns)
    figure, panels = canvas(rows, columns, 1.0 + 3.1 * rows, sharex=True, sharey=True)
    title = _title(found)
    frame(figure, run.summary, title)
    for axes, condition in zip(panels, conditions, strict=False):
        _panel(axes, run.summary, [curve for curve in found if curve.condition == condition])
        axes.set_title(condition)
    for axes in panels[len(conditions) :]:
        axes.remove()
    counts = _counts(found)
    panels[0].set_xticks(counts, [str(count) for count in counts])  # panels share them
    panels[0].xaxis.set_minor_locator(NullLocator())
    lay_out(figure)  # settles the limits that labels are placed by
    for axes, condition in zip(panels, conditions, strict=False):
        members = [curve for curve in found if curve.condition == condition]
        ends = {
            curve.display_name: (curve.points[-1].speedup, colour(run.summary, curve.strategy)) for curve in members
        }
        ends["ideal"] = (max(_counts(members)) / members[0].base.workers, BASELINE)
        at_right(axes, ends)
    return Drawing("speedup", title, f"{caption(found)} {LEGEND}", _table(found, run.summary.balance), figure)


def caption(found: Sequence[SpeedupCurve]) -> str:
    """The base case with its absolute time (Hoefler & Belli, SC 2015), and what T is."""
    served: dict[tuple[str, float, TimeMetric], dict[str, None]] = {}
    for curve in found:
        base = (curve.base_description, curve.base.seconds, curve.of)
        served.setdefault(base, {})[curve.condition] = None
    if len(served) > MOST_BASES:
        times = [curve.base.seconds for curve in found]
        whose = {ONE_WORKER if curve.base_description == ONE_WORKER else "its smallest size" for curve in found}
        which = " or ".join(sorted(whose, reverse=True))
        told = f"of each curve {which}, {format_number(min(times))} to {format_number(max(times))} s, all in the data"
        return f"S = T(base) / T(N). Base: {told}. Workers are counted, servers are not."
    told = "; ".join(_base(*base, "" if len(served) == 1 else " or ".join(served[base])) for base in sorted(served))
    return f"S = T(base) / T(N). Base: {told}. Workers are counted, servers are not."


def _base(called: str, seconds: float, of: TimeMetric, conditions: str) -> str:
    """Of several bases also for which conditions: one worker alone takes another time under each."""
    kind = "time to target" if of == "time_to_target" else "time for the common sample budget"
    under = f" with {conditions}" if conditions else ""
    return f"{called}{under}, {format_number(seconds)} s ({kind})"


def _title(found: Sequence[SpeedupCurve]) -> str:
    tops = {place: _top(curve) for place, curve in enumerate(found)}
    place = max(tops, key=lambda each: tops[each].speedup)
    best, top = found[place], tops[place]
    where = f", {best.condition}" if best.condition else ""
    if top.speedup <= 1:
        return f"No strategy beats its base: the best, {best.strategy}, reaches {top.speedup:.2f}"
    faster = f"{format_number(top.speedup)} times as fast on {top.workers} workers{where} as {best.base_description}"
    rivals = len({curve.strategy for curve in found}) > 1
    return f"{best.strategy} scales best: {faster}" if rivals else f"{best.strategy} gets {faster}"


def _top(curve: SpeedupCurve) -> SpeedupPoint:
    """Of a curve that is its own base one of the other points: there it is 1 by definition."""
    return max(curve.points, key=lambda point: (point.workers > curve.base.workers, point.speedup))


def _panel(axes: Axes, summary: RunSummary, members: Sequence[SpeedupCurve]) -> None:
    counts = _counts(members)
    ideal = [workers / members[0].base.workers for workers in counts]
    axes.plot(counts, ideal, color=BASELINE, linestyle="--", linewidth=1)
    for curve in members:
        _line(axes, curve.points, colour(summary, curve.strategy), marker(summary, curve.strategy))
        mark(axes, curve, summary.balance, lambda point: point.speedup)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(f"{{x:g}}{TIMES_SIGN}")
    axes.set_xlabel("workers")
    axes.set_ylabel("speedup")


def _counts(members: Sequence[SpeedupCurve]) -> list[int]:
    return sorted({point.workers for curve in members for point in curve.points})


def _line(axes: Axes, points: Sequence[SpeedupPoint], tint: str, shape: str) -> None:
    counts, values = [point.workers for point in points], [point.speedup for point in points]
    axes.plot(counts, values, color=tint, marker=shape, markersize=5)
    for point in points:
        if point.speedup_ci:
            axes.vlines(point.workers, *point.speedup_ci, color=tint, linewidth=4, alpha=0.35)


def _table(found: Sequence[SpeedupCurve], picks: Sequence[BalancePoint]) -> pd.DataFrame:
    rows = [
        (
            *(curve.strategy, curve.condition, curve.of, curve.base.strategy, curve.base.workers, curve.base.seconds),
            *(point.workers, point.seconds, point.speedup, *(point.speedup_ci or (None, None)), point.runs),
            rules_at(curve, point, picks),
        )
        for curve in found
        for point in curve.points
    ]
    columns = ["strategy", "condition", "of", "base_strategy", "base_workers", "base_s"]
    return pd.DataFrame(
        rows, columns=[*columns, "workers", "seconds", "speedup", "ci_low", "ci_high", "runs", "balance"]
    )
