"""Does every strategy scale as its closed form says?"""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from analysis.figures.base import Drawing, Run
from analysis.figures.drawing.labels import at_right
from analysis.figures.drawing.style import BASELINE, INK, PAPER, canvas, colour, frame, lay_out, marker
from analysis.metrics.speedup import SpeedupCurve
from analysis.report.answers import describe_predicted_speedups
from analysis.report.wording import capitalise_first_letter, format_number
from analysis.results.result import TIMES_SIGN
from services.scenario.published import PublishedCurve

COLUMNS = 3
THEIRS = {"measured": ("x", "theirs"), "predicted": ("+", "their form")}  # what others found -> marker, name


def predicted_speedup(run: Run) -> Drawing | None:
    """One panel per curve, log-log: the closed form's speedup open, the measured one filled, ideal dashed.

    What others have published of a strategy stands in its panels, in grey.
    """
    found = [curve for curve in run.summary.curves if curve.has_predictions]
    if not found:
        return None
    columns = min(COLUMNS, len(found))
    rows = -(-len(found) // columns)
    figure, panels = canvas(rows, columns, 1.1 + 2.5 * rows, sharex=True, sharey=True)
    title = capitalise_first_letter(describe_predicted_speedups(found))
    frame(figure, run.summary, title)
    for place, (axes, curve) in enumerate(zip(panels, found, strict=False)):
        _panel(axes, curve, colour(run.summary, curve.strategy), marker(run.summary, curve.strategy))
        _theirs(axes, run.summary.published_for(curve.strategy))
        axes.set_xlabel("workers" if place + columns >= len(found) else "")
        axes.xaxis.set_tick_params(labelbottom=True)
    for axes in panels[len(found) :]:
        axes.remove()
    for axes in panels[: len(found) : columns]:
        axes.set_ylabel("speedup")
    counts = sorted({point.workers for curve in found for point in curve.points})
    panels[0].set_xticks(counts, [str(count) for count in counts])  # panels share them
    panels[0].xaxis.set_minor_locator(NullLocator())
    lay_out(figure)  # settles the limits that labels are placed by
    for axes, curve in zip(panels, found, strict=False):
        _name_ends(axes, curve, colour(run.summary, curve.strategy), run.summary.published_for(curve.strategy))
    caption = (
        "Speedup in samples per second over the same base: filled as measured, open as the closed forms say "
        "(predicted step x steps of the whole budget). Dashed: ideal. What learning costs is in neither."
    )
    caption += _sources(run.summary.published)
    return Drawing("predicted_speedup", title, caption, _table(found, run.summary.published), figure)


def _sources(published: Sequence[PublishedCurve]) -> str:
    told = ", ".join(dict.fromkeys(each.source for each in published))
    return f" Grey: crosses as measured by others, pluses as their own model says ({told})." if told else ""


def _panel(axes: Axes, curve: SpeedupCurve, tint: str, shape: str) -> None:
    counts = [point.workers for point in curve.points]
    axes.plot(counts, [count / curve.base.workers for count in counts], color=BASELINE, linestyle="--", linewidth=1)
    told = [point.predicted_speedup or float("nan") for point in curve.points]
    axes.plot(counts, told, "o-", color=INK, markerfacecolor=PAPER, markersize=9, markeredgewidth=1.1, linewidth=0.9)
    axes.plot(counts, [point.rate_speedup for point in curve.points], color=tint, marker=shape, markersize=4.5)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(f"{{x:g}}{TIMES_SIGN}")
    axes.set_title(curve.description, color=tint, fontweight="bold")


def _theirs(axes: Axes, published: Sequence[PublishedCurve]) -> None:
    for each in published:
        for of, (shape, _) in THEIRS.items():
            told = [(point.workers, value) for point in each.points if (value := getattr(point, of))]
            counts, values = [count for count, _ in told], [value for _, value in told]
            axes.plot(counts, values, ":", color=BASELINE, marker=shape, linewidth=0.9)


def _name_ends(axes: Axes, curve: SpeedupCurve, tint: str, published: Sequence[PublishedCurve]) -> None:
    last = curve.points[-1]
    told = last.predicted_speedup or float("nan")
    names = {
        f"{format_number(told)} form": (told, INK),
        f"{format_number(last.rate_speedup)} measured": (last.rate_speedup, tint),
    }
    for of, (_, name) in THEIRS.items():
        found = [value for each in published for point in each.points[-1:] if (value := getattr(point, of))]
        names |= {f"{format_number(value)} {name}": (value, BASELINE) for value in found}
    at_right(axes, names, size=8)


def _table(found: Sequence[SpeedupCurve], published: Sequence[PublishedCurve]) -> pd.DataFrame:
    theirs = {(each.strategy, point.workers): point for each in published for point in each.points}
    rows = [
        (
            *(curve.strategy, curve.condition, curve.base.strategy, curve.base.workers, point.workers),
            *(point.rate_speedup, point.predicted_speedup),
            *(getattr(theirs.get((curve.strategy, point.workers)), of, None) for of in THEIRS),
        )
        for curve in found
        for point in curve.points
    ]
    columns = ["strategy", "condition", "base_strategy", "base_workers", "workers"]
    shown = ["measured_speedup", "predicted_speedup", *(f"published_{of}" for of in THEIRS)]
    return pd.DataFrame(rows, columns=[*columns, *shown])
