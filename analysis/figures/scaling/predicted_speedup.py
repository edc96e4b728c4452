"""Figure `predicted_speedup`: measured, predicted and published speedup of every strategy."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.drawing import style
from analysis.figures.drawing.labels import draw_right_edge_labels
from analysis.metrics.speedup import SpeedupCurve
from analysis.report.findings.main_finding import describe_predicted_speedups
from analysis.report.wording import TIMES_SIGN, capitalise_first_letter, format_number
from analysis.results.summary import RunSummary
from services.scenario.published_curves import PublishedCurve

MAX_PANEL_COLUMNS = 3
# field of a published point -> its marker and label
PUBLISHED_MARKERS = {"measured": ("x", "published"), "predicted": ("+", "published model")}


def draw_predicted_speedup(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw measured and predicted speedup by number of workers.

    There is one panel per strategy and set of swept values.

    Axes are logarithmic; speedup is in samples/s. Measured speedups are filled marks, speedups predicted by the
    closed form open marks. The ideal speedup is dashed; speedups published by others for the same strategy are grey.
    """
    curves = [curve for curve in run.summary.curves if curve.has_predictions]
    if not curves:
        return None
    columns = min(MAX_PANEL_COLUMNS, len(curves))
    rows = -(-len(curves) // columns)
    figure, panels = style.create_figure(rows, columns, 1.1 + 2.5 * rows, sharex=True, sharey=True)
    title = capitalise_first_letter(describe_predicted_speedups(curves))
    style.add_run_title_and_footer(figure, run.summary, title)
    for index, (axes, curve) in enumerate(zip(panels, curves, strict=False)):
        colour = style.strategy_colour(run.summary, curve.strategy)
        _draw_speedup_panel(axes, curve, colour, style.strategy_marker(run.summary, curve.strategy))
        _draw_published_speedups(axes, _published_speeds_of(run.summary, curve.strategy))
        axes.set_xlabel("workers" if index + columns >= len(curves) else "")
        axes.xaxis.set_tick_params(labelbottom=True)
    for axes in panels[len(curves) :]:
        axes.remove()
    for axes in panels[: len(curves) : columns]:
        axes.set_ylabel("speedup")
    counts = sorted({point.workers for curve in curves for point in curve.points})
    panels[0].set_xticks(counts, [str(count) for count in counts])  # all panels share the ticks
    panels[0].xaxis.set_minor_locator(NullLocator())
    style.apply_layout(figure)  # fixes the axis limits, which place the labels
    for axes, curve in zip(panels, curves, strict=False):
        colour = style.strategy_colour(run.summary, curve.strategy)
        _label_both_curve_ends(axes, curve, colour, _published_speeds_of(run.summary, curve.strategy))
    caption = (
        "Speedup in samples per second over the same base. Filled: measured. Open: predicted by the closed forms "
        "(predicted step x steps of the whole budget). Dashed: ideal. Neither includes the cost of learning."
    )
    caption += _describe_published_sources(run.summary.published_speeds)
    return CaptionedFigure(
        "predicted_speedup", title, caption, _figure_data(curves, run.summary.published_speeds), figure
    )


def _published_speeds_of(summary: RunSummary, strategy: str) -> tuple[PublishedCurve, ...]:
    return tuple(curve for curve in summary.published_speeds if curve.strategy == strategy)


def _describe_published_sources(published_curves: Sequence[PublishedCurve]) -> str:
    """Return caption text that names the publications whose speedups are drawn.

    The result is empty if there are none.
    """
    sources = ", ".join(dict.fromkeys(each.source for each in published_curves))
    return f" Grey: published by others; crosses measured, pluses by their own model ({sources})." if sources else ""


def _draw_speedup_panel(axes: Axes, curve: SpeedupCurve, colour: str, marker: str) -> None:
    counts = [point.workers for point in curve.points]
    ideal = [count / curve.base.workers for count in counts]
    axes.plot(counts, ideal, color=style.BASELINE_GREY, linestyle="--", linewidth=1)
    predicted = [point.predicted_speedup or float("nan") for point in curve.points]
    axes.plot(
        counts, predicted, "o-", color=style.FOREGROUND, markerfacecolor=style.BACKGROUND, markersize=9,
        markeredgewidth=1.1, linewidth=0.9,
    )  # fmt: skip
    axes.plot(counts, [point.rate_speedup for point in curve.points], color=colour, marker=marker, markersize=4.5)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(f"{{x:g}}{TIMES_SIGN}")
    axes.set_title(curve.description, color=colour, fontweight="bold")


def _draw_published_speedups(axes: Axes, published_curves: Sequence[PublishedCurve]) -> None:
    for curve in published_curves:
        for field_name, (marker, _) in PUBLISHED_MARKERS.items():
            points = [point for point in curve.points if getattr(point, field_name)]
            speedups = [(curve.relative_size(point), getattr(point, field_name)) for point in points]
            counts, values = [count for count, _ in speedups], [speedup for _, speedup in speedups]
            axes.plot(counts, values, ":", color=style.BASELINE_GREY, marker=marker, linewidth=0.9)


def _label_both_curve_ends(
    axes: Axes, curve: SpeedupCurve, colour: str, published_curves: Sequence[PublishedCurve]
) -> None:
    last = curve.points[-1]
    predicted = last.predicted_speedup or float("nan")
    labels = {
        f"{format_number(predicted)} predicted": (predicted, style.FOREGROUND),
        f"{format_number(last.rate_speedup)} measured": (last.rate_speedup, colour),
    }
    for field_name, (_, label) in PUBLISHED_MARKERS.items():
        last_points = [point for published_curve in published_curves for point in published_curve.points[-1:]]
        speedups = [speedup for point in last_points if (speedup := getattr(point, field_name))]
        labels |= {f"{format_number(speedup)} {label}": (speedup, style.BASELINE_GREY) for speedup in speedups}
    draw_right_edge_labels(axes, labels, font_points=8)


def _figure_data(speedup_curves: Sequence[SpeedupCurve], published_curves: Sequence[PublishedCurve]) -> pd.DataFrame:
    published_points = {
        (curve.strategy, curve.relative_size(point)): point for curve in published_curves for point in curve.points
    }
    rows = [
        (
            *(curve.strategy, curve.condition, curve.base.strategy, curve.base.workers, point.workers),
            *(point.rate_speedup, point.predicted_speedup),
            *(getattr(published_points.get((curve.strategy, point.workers)), name, None) for name in PUBLISHED_MARKERS),
        )
        for curve in speedup_curves
        for point in curve.points
    ]
    keys = ["strategy", "condition", "base_strategy", "base_workers", "workers"]
    values = ["measured_speedup", "predicted_speedup", *(f"published_{name}" for name in PUBLISHED_MARKERS)]
    return pd.DataFrame(rows, columns=[*keys, *values])
