"""Figures that compare several runs: speedup, efficiency, time to target and loss.

All runs are drawn in the same panel.

Each strategy has a colour, and each run has a line style.
"""

from collections.abc import Callable
from dataclasses import replace
from math import isfinite

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from analysis.comparison.compared_curves import ComparedRunsAndCurves
from analysis.comparison.curve_tables import loss_curve_tables, make_curve_table
from analysis.comparison.curves import ComparedSpeedupCurve, ComparedSpeedupPoint
from analysis.comparison.overlay_titles import (
    describe_speedup_bases,
    format_efficiency_title,
    format_final_loss_title,
    format_speedup_title,
    format_time_title,
)
from analysis.figures.base import CaptionedFigure
from analysis.figures.drawing.style import (
    BASELINE_GREY,
    add_title_and_footer,
    count_legend_rows,
    create_figure,
    figure_style_context,
    start_axes_at_zero,
)
from analysis.report.wording import TIMES_SIGN

LINE_STYLE_NAMES = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dash-dotted"}
OVERLAY_HEIGHT_IN = 4.2


def draw_comparison_figures(overlay: ComparedRunsAndCurves) -> list[CaptionedFigure]:
    """Draw all figures that compare runs, such as the speedup.

    Figures without data are left out.
    """
    figure_functions = (draw_speedup_overlay, draw_efficiency_overlay, draw_time_to_target_overlay, draw_loss_overlay)
    with figure_style_context():
        return [drawing for draw in figure_functions if (drawing := draw(overlay)) is not None]


def draw_speedup_overlay(overlay: ComparedRunsAndCurves) -> CaptionedFigure | None:
    """Draw the speedup of all runs on logarithmic axes, with 95% intervals.

    The x axis is the number of workers N, divided by the number of workers of the base run.
    """
    if not overlay.curves:
        return None
    title = format_speedup_title(overlay)
    figure, axes = _create_workers_panel(overlay, title)
    ideal = sorted({point.relative_workers for curve in overlay.curves for point in curve.points})
    axes.plot(ideal, ideal, color=BASELINE_GREY, linestyle="--", linewidth=1)
    for curve in overlay.curves:
        _draw_curve(axes, overlay, curve, lambda point: point.factors.speedup)
        colour = overlay.curve_colour(curve)
        for point in curve.points:
            if point.speedup_ci:
                axes.vlines(point.relative_workers, *point.speedup_ci, color=colour, linewidth=4, alpha=0.3)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(f"{{x:g}}{TIMES_SIGN}")
    axes.set_ylabel("speedup")
    caption = f"S = T(base) / T(N); bars: 95% intervals; dashed grey: ideal. {describe_speedup_bases(overlay)}"
    return CaptionedFigure("speedup", title, caption, make_curve_table(overlay.curves), figure)


def draw_efficiency_overlay(overlay: ComparedRunsAndCurves) -> CaptionedFigure | None:
    """Draw the efficiency (speedup per worker) of all runs.

    x axis: number of workers relative to a curve's base.
    """
    if not overlay.curves:
        return None
    title = format_efficiency_title(overlay)
    figure, axes = _create_workers_panel(overlay, title)
    for curve in overlay.curves:
        _draw_curve(axes, overlay, curve, lambda point: point.factors.efficiency)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_ylabel("efficiency E'")
    start_axes_at_zero([axes], y=True)
    definition = "E' = S / (N / N of the base) = hardware x statistical; both factors are in the data."
    return CaptionedFigure(
        "efficiency",
        title,
        f"{definition} {describe_speedup_bases(overlay)}",
        make_curve_table(overlay.curves),
        figure,
    )


def draw_time_to_target_overlay(overlay: ComparedRunsAndCurves) -> CaptionedFigure | None:
    """Draw the time that each run takes to the training target against the number of workers.

    Times are virtual seconds.

    Published series are not drawn, because their times are real seconds and not virtual seconds.
    """
    curves = [curve for curve in overlay.run_speedup_curves if curve.time_description == "time to target"]
    if not curves:
        return None
    overlay = replace(overlay, curves=curves)
    seconds = {(curve.name, point.workers): point.seconds for curve in curves for point in curve.points}
    title = format_time_title(overlay, seconds)
    figure, axes = _create_workers_panel(overlay, title, "workers")
    for curve in curves:
        colour = overlay.curve_colour(curve)
        _draw_curve(axes, overlay, curve, lambda point: point.seconds, lambda point: point.workers)
        for point in curve.points:
            if point.seconds_ci and all(map(isfinite, point.seconds_ci)):
                axes.vlines(point.workers, *point.seconds_ci, color=colour, linewidth=4, alpha=0.3)
    _set_logarithmic_y_axis(axes)
    axes.set_ylabel("virtual seconds to the target")
    caption = (
        f"Olympic means; bars: 95% intervals. Curves without a target are left out. {describe_speedup_bases(overlay)}"
    )
    return CaptionedFigure("time_to_target", title, caption, make_curve_table(curves), figure)


def draw_loss_overlay(overlay: ComparedRunsAndCurves) -> CaptionedFigure | None:
    """Draw the training loss of every strategy over virtual time.

    Each curve shows the first repeat on the largest number of workers of the strategy.
    """
    loss_tables = [table for run in overlay.runs for table in loss_curve_tables(run)]
    if not loss_tables:
        return None
    data = pd.concat(loss_tables, ignore_index=True)
    final_losses = data.groupby("name", sort=False)["loss"].last()
    names = list(dict.fromkeys(data["name"]))
    title = format_final_loss_title(overlay, {name: float(final_losses[name]) for name in names})
    strategies = dict(zip(data["name"], data["strategy"], strict=True))
    colours = {name: overlay.strategy_colour(strategies[name]) for name in names}
    figure, (axes,) = create_figure(1, 1, OVERLAY_HEIGHT_IN + 0.2 * count_legend_rows(colours))
    line_styles = {name: overlay.run_line_style(name.partition(" ")[0]) for name in names}
    add_title_and_footer(figure, title, overlay.figure_footer_text, colours, legend_line_styles=line_styles)
    for name, evaluations in data.groupby("name", sort=False):
        line_style = overlay.run_line_style(str(evaluations["run"].iloc[0]))
        axes.plot(evaluations["time_s"], evaluations["loss"], color=colours[str(name)], linestyle=line_style)
    _set_logarithmic_y_axis(axes)
    axes.set_xlabel("virtual seconds")
    axes.set_ylabel("loss, held-out samples")
    styles = ", ".join(f"{LINE_STYLE_NAMES[overlay.run_line_style(run.letter)]} {run.letter}" for run in overlay.runs)
    choice = "First repeat of every strategy and condition on its most workers, at every evaluation."
    return CaptionedFigure("loss", title, f"Line style: {styles}. {choice}", data, figure)


def _create_workers_panel(
    overlay: ComparedRunsAndCurves, title: str, x_label: str = "workers / workers of the base"
) -> tuple[Figure, Axes]:
    height_in = OVERLAY_HEIGHT_IN + 0.2 * count_legend_rows(overlay.curve_colours) + 0.12 * len(overlay.runs)
    figure, (axes,) = create_figure(1, 1, height_in)
    markers = {curve.name: overlay.curve_marker(curve) for curve in overlay.curves}
    add_title_and_footer(
        figure, title, overlay.figure_footer_text, overlay.curve_colours, markers, overlay.curve_line_styles
    )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(x_label)
    return figure, axes


def _draw_curve(
    axes: Axes,
    overlay: ComparedRunsAndCurves,
    compared_curve: ComparedSpeedupCurve,
    y_of_point: Callable[[ComparedSpeedupPoint], float],
    x_of_point: Callable[[ComparedSpeedupPoint], float] | None = None,
) -> None:
    axes.plot(
        [(x_of_point or _worker_count_over_base)(point) for point in compared_curve.points],
        [y_of_point(point) for point in compared_curve.points],
        color=overlay.curve_colour(compared_curve),
        marker=overlay.curve_marker(compared_curve),
        linestyle=overlay.run_line_style(compared_curve.run_letter),
        markersize=5,
    )


def _set_logarithmic_y_axis(axes: Axes) -> None:
    """Set a logarithmic y axis with ticks at powers of two.

    Most runs span too few powers of ten.
    """
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:.3g}")
    axes.yaxis.set_minor_locator(NullLocator())


def _worker_count_over_base(curve_point: ComparedSpeedupPoint) -> float:
    return curve_point.relative_workers
