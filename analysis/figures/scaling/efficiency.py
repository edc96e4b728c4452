"""Figure `efficiency`: parallel efficiency by number of workers.

Parallel efficiency is split into hardware and statistical efficiency.
"""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator, PercentFormatter

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.drawing import style
from analysis.figures.drawing.balance import BALANCE_LEGEND, format_rules_choosing_point, mark_chosen_worker_counts
from analysis.figures.drawing.labels import draw_right_edge_labels
from analysis.metrics.comparisons.worker_choice import RuleAndWorkerCount
from analysis.metrics.speedup import SpeedupCurve
from analysis.report.findings.scaling_findings import describe_efficiency_factors
from analysis.statistics.worker_count_rules import MIN_EFFICIENCY

MAX_PANEL_COLUMNS = 3
EXTRA_DATA_COLUMNS = ("efficiency_with_servers", "efficiency_by_speed", "rate_efficiency", "balance")


def draw_parallel_efficiency(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw parallel efficiency by number of workers.

    Its factors, hardware and statistical efficiency, are thin curves.

    Parallel efficiency E' = hardware efficiency x statistical efficiency. One panel per strategy and condition.
    """
    curves = [curve for curve in run.summary.curves if len(curve.points) > 1]
    if not curves:
        return None
    columns = min(MAX_PANEL_COLUMNS, len(curves))
    rows = -(-len(curves) // columns)
    figure, panels = style.create_figure(rows, columns, 1.1 + 2.5 * rows, sharey=True)
    title = _figure_title(curves)
    style.add_run_title_and_footer(figure, run.summary, title)
    for axes, curve in zip(panels, curves, strict=False):
        colour = style.strategy_colour(run.summary, curve.strategy)
        _draw_efficiency_panel(axes, curve, colour, style.strategy_marker(run.summary, curve.strategy))
        mark_chosen_worker_counts(axes, curve, run.summary.balance, lambda point: point.efficiency)
    for axes in panels[len(curves) :]:
        axes.remove()
    for axes in panels[: len(curves) : columns]:
        axes.set_ylabel("efficiency")
    style.start_axes_at_zero(panels[: len(curves)], y=True)
    style.apply_layout(figure)  # fixes the axis limits, which place the labels
    for axes, curve in zip(panels, curves, strict=False):
        _label_curve_ends(axes, curve, style.strategy_colour(run.summary, curve.strategy))
    caption = (
        "E' = S / (N / workers of the base) = hardware x statistical. Statistical: samples to the target on the base / "
        "on N workers. Hardware: the quotient E' / statistical; the measured gain in samples per second and worker is "
        'in the data (rate_efficiency). Dotted: the 50% rule. Workers are counted, servers are not. A curve named "by '
        f'samples" missed the target at some size; its T is the time for the common sample budget. {BALANCE_LEGEND}'
    )
    return CaptionedFigure("efficiency", title, caption, _figure_data(curves, run.summary.balance), figure)


def _figure_title(speedup_curves: Sequence[SpeedupCurve]) -> str:
    """Return a title with the highest and the lowest parallel efficiency on the most workers.

    The title also states the two factors of the lowest efficiency, if they are measured.
    """
    best = max(speedup_curves, key=lambda curve: curve.points[-1].efficiency)
    worst = min(speedup_curves, key=lambda curve: curve.points[-1].efficiency)
    highest, lowest = best.points[-1], worst.points[-1]
    finding = f"{best.description} keeps {highest.efficiency:.0%} efficiency on {highest.workers} workers"
    if best == worst:
        return finding
    size = f" on {lowest.workers}" if lowest.workers != highest.workers else ""
    return f"{finding}; {worst.description} keeps {lowest.efficiency:.0%}{size}{describe_efficiency_factors(lowest)}"


def _draw_efficiency_panel(axes: Axes, curve: SpeedupCurve, colour: str, marker: str) -> None:
    counts = [point.workers for point in curve.points]
    axes.axhline(MIN_EFFICIENCY, color=style.BASELINE_GREY, linestyle=":", linewidth=1)
    if curve.of == "time_to_target":
        hardware = [point.hardware_efficiency or 0.0 for point in curve.points]
        axes.plot(counts, hardware, color=style.FOREGROUND, linewidth=1.1, linestyle="--")
        statistical = [point.statistical_efficiency or 0.0 for point in curve.points]
        axes.plot(counts, statistical, color=style.FOREGROUND, linewidth=1.1, linestyle="-.")
    axes.plot(counts, [point.efficiency for point in curve.points], color=colour, marker=marker, markersize=5)
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xlabel("workers")
    axes.set_title(" · ".join(filter(None, [curve.display_name, curve.condition])), color=colour, fontweight="bold")


def _label_curve_ends(axes: Axes, speedup_curve: SpeedupCurve, colour: str) -> None:
    last = speedup_curve.points[-1]
    labels = {"E'": (last.efficiency, colour)}
    if last.hardware_efficiency is not None and last.statistical_efficiency is not None:
        labels["hardware"] = (last.hardware_efficiency, style.FOREGROUND)
        labels["statistical"] = (last.statistical_efficiency, style.FOREGROUND)
    draw_right_edge_labels(axes, labels, font_points=8)


def _figure_data(curves: Sequence[SpeedupCurve], count_choices: Sequence[RuleAndWorkerCount]) -> pd.DataFrame:
    rows = [
        (
            *(curve.strategy, curve.condition, curve.of, point.workers, point.efficiency, point.hardware_efficiency),
            *(point.statistical_efficiency, point.efficiency_with_servers, point.efficiency_by_speed),
            *(point.throughput_efficiency(curve.base), format_rules_choosing_point(curve, point, count_choices)),
        )
        for curve in curves
        for point in curve.points
    ]
    columns = ["strategy", "condition", "of", "workers", "efficiency", "hardware_efficiency", "statistical_efficiency"]
    return pd.DataFrame(rows, columns=[*columns, *EXTRA_DATA_COLUMNS])
