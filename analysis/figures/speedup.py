"""How much faster does each strategy get with more workers?"""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from analysis.figures.base import Drawing, Run
from analysis.figures.labels import at_right
from analysis.figures.style import BASELINE, canvas, colour, frame, marker
from analysis.metrics.speedup import Curve, Point
from analysis.result import TIMES
from analysis.summary import Summary
from analysis.wording import number
from analysis.wording import workers as how_many

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
    figure.draw_without_rendering()  # settles the limits that labels are placed by
    for axes, condition in zip(panels, conditions, strict=False):
        members = [curve for curve in found if curve.condition == condition]
        ends = {curve.name: (curve.points[-1].speedup, colour(run.summary, curve.strategy)) for curve in members}
        ends["ideal"] = (max(_counts(members)) / members[0].base.workers, BASELINE)
        at_right(axes, ends)
    return Drawing("speedup", title, caption(found), _table(found), figure)


def caption(found: Sequence[Curve]) -> str:
    """The base case with its absolute time (Hoefler & Belli, SC 2015), and what T is."""
    bases = {(curve.base.strategy, curve.base.workers, curve.base.seconds, curve.of) for curve in found}
    told = "; ".join(
        f"{strategy} on {how_many(workers)}, {number(seconds)} s "
        f"({'time to target' if of == 'time_to_target' else 'time for the common sample budget'})"
        for strategy, workers, seconds, of in sorted(bases)
    )
    return f"S = T(base) / T(N). Base: {told}. Workers are counted, servers are not."


def _title(found: Sequence[Curve]) -> str:
    best = max(found, key=lambda curve: max(point.speedup for point in curve.points))
    top = max(best.points, key=lambda point: point.speedup)
    where = f", {best.condition}" if best.condition else ""
    if top.speedup <= 1:
        return f"No strategy beats its base: the best, {best.strategy}, reaches {top.speedup:.2f}"
    return f"{best.strategy} scales best: {top.speedup:.2g} times faster on {top.workers} workers{where}"


def _panel(axes: Axes, summary: Summary, members: Sequence[Curve]) -> None:
    counts = _counts(members)
    ideal = [workers / members[0].base.workers for workers in counts]
    axes.plot(counts, ideal, color=BASELINE, linestyle="--", linewidth=1)
    for curve in members:
        _line(axes, curve.points, colour(summary, curve.strategy), marker(summary, curve.strategy))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{TIMES}"))
    axes.set_xlabel("workers")
    axes.set_ylabel("speedup")


def _counts(members: Sequence[Curve]) -> list[int]:
    return sorted({point.workers for curve in members for point in curve.points})


def _line(axes: Axes, points: Sequence[Point], tint: str, shape: str) -> None:
    counts, values = [point.workers for point in points], [point.speedup for point in points]
    axes.plot(counts, values, color=tint, marker=shape, markersize=5)
    for point in points:
        if point.speedup_ci:
            axes.vlines(point.workers, *point.speedup_ci, color=tint, linewidth=4, alpha=0.35)


def _table(found: Sequence[Curve]) -> pd.DataFrame:
    rows = [
        (
            *(curve.strategy, curve.condition, curve.of, curve.base.strategy, curve.base.workers, curve.base.seconds),
            *(point.workers, point.seconds, point.speedup, *(point.speedup_ci or (None, None)), point.runs),
        )
        for curve in found
        for point in curve.points
    ]
    columns = ["strategy", "condition", "of", "base_strategy", "base_workers", "base_s"]
    return pd.DataFrame(rows, columns=[*columns, "workers", "seconds", "speedup", "ci_low", "ci_high", "runs"])
