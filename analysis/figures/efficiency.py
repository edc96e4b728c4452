"""Where does efficiency go: to the hardware or to the learning?"""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator, PercentFormatter

from analysis.figures.base import Drawing, Run
from analysis.figures.drawing.balance import LEGEND, mark, rules_at
from analysis.figures.drawing.labels import at_right
from analysis.figures.drawing.style import BASELINE, INK, canvas, colour, frame, from_zero, lay_out, marker
from analysis.metrics.balance import MIN_EFFICIENCY, BalancePoint
from analysis.metrics.speedup import SpeedupCurve
from analysis.report.answers import describe_efficiency_loss

COLUMNS = 3
MORE_COLUMNS = ("efficiency_with_servers", "efficiency_by_speed", "rate_efficiency", "balance")


def efficiency(run: Run) -> Drawing | None:
    """One panel per curve: E' solid, its two factors thin; E' = hardware x statistical."""
    found = [curve for curve in run.summary.curves if len(curve.points) > 1]
    if not found:
        return None
    columns = min(COLUMNS, len(found))
    rows = -(-len(found) // columns)
    figure, panels = canvas(rows, columns, 1.1 + 2.5 * rows, sharey=True)
    title = _title(found)
    frame(figure, run.summary, title)
    for axes, curve in zip(panels, found, strict=False):
        _panel(axes, curve, colour(run.summary, curve.strategy), marker(run.summary, curve.strategy))
        mark(axes, curve, run.summary.balance, lambda point: point.efficiency)
    for axes in panels[len(found) :]:
        axes.remove()
    for axes in panels[: len(found) : columns]:
        axes.set_ylabel("efficiency")
    from_zero(panels[: len(found)], y=True)
    lay_out(figure)  # settles the limits that labels are placed by
    for axes, curve in zip(panels, found, strict=False):
        _name_lines(axes, curve, colour(run.summary, curve.strategy))
    caption = (
        "E' = S / (N / base workers) = hardware x statistical. Statistical: samples to the target, base against N. "
        "Hardware: what is left of E'; the gain in samples per second and worker as measured is in the data "
        "(rate_efficiency). Dotted: the 50% rule. Workers counted, servers not. "
        f"A curve by samples missed the target somewhere; its T is the time for the common sample budget. {LEGEND}"
    )
    return Drawing("efficiency", title, caption, _table(found, run.summary.balance), figure)


def _title(found: Sequence[SpeedupCurve]) -> str:
    """The best efficiency at the largest N, and the larger loss of the one that loses most; each with its condition."""
    best = max(found, key=lambda curve: curve.points[-1].efficiency)
    worst = min(found, key=lambda curve: curve.points[-1].efficiency)
    top, low = best.points[-1], worst.points[-1]
    text = f"{best.description} keeps {top.efficiency:.0%} efficiency on {top.workers} workers"
    where = f" on {low.workers}" if low.workers != top.workers else ""
    return (
        text
        if best == worst
        else f"{text}; {worst.description} keeps {low.efficiency:.0%}{where}, {describe_efficiency_loss(low)}"
    )


def _panel(axes: Axes, curve: SpeedupCurve, tint: str, shape: str) -> None:
    counts = [point.workers for point in curve.points]
    axes.axhline(MIN_EFFICIENCY, color=BASELINE, linestyle=":", linewidth=1)
    if curve.of == "time_to_target":
        hardware = [point.hardware_efficiency for point in curve.points]
        axes.plot(counts, hardware, color=INK, linewidth=1.1, linestyle="--")
        statistical = [point.statistical_efficiency or 0.0 for point in curve.points]
        axes.plot(counts, statistical, color=INK, linewidth=1.1, linestyle="-.")
    axes.plot(counts, [point.efficiency for point in curve.points], color=tint, marker=shape, markersize=5)
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xlabel("workers")
    axes.set_title(" · ".join(filter(None, [curve.display_name, curve.condition])), color=tint, fontweight="bold")


def _name_lines(axes: Axes, curve: SpeedupCurve, tint: str) -> None:
    last = curve.points[-1]
    lines = {"E'": (last.efficiency, tint)}
    if last.statistical_efficiency is not None:
        lines |= {"hardware": (last.hardware_efficiency, INK), "statistical": (last.statistical_efficiency, INK)}
    at_right(axes, lines, size=8)


def _table(found: Sequence[SpeedupCurve], picks: Sequence[BalancePoint]) -> pd.DataFrame:
    rows = [
        (
            *(curve.strategy, curve.condition, curve.of, point.workers, point.efficiency, point.hardware_efficiency),
            *(point.statistical_efficiency, point.efficiency_with_servers, point.efficiency_by_speed),
            *(point.rate_efficiency(curve.base), rules_at(curve, point, picks)),
        )
        for curve in found
        for point in curve.points
    ]
    columns = ["strategy", "condition", "of", "workers", "efficiency", "hardware_efficiency", "statistical_efficiency"]
    return pd.DataFrame(rows, columns=[*columns, *MORE_COLUMNS])
