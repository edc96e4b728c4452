"""Figure of scaling efficiency and its hardware and statistical factors by number of accelerators."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from analysis.figures.base import CaptionedFigure
from analysis.figures.drawing import style
from analysis.figures.drawing.labels import draw_right_edge_labels
from analysis.mlperf.figures.frame import NOT_OFFICIAL_NOTICE, set_up_accelerator_count_axis
from analysis.mlperf.series import ScalingSeries

PANEL_COLUMNS = 2
STYLES = {
    "E'": (style.FOREGROUND, "o", "-"),
    "hardware": (style.PALETTE[0], "s", "--"),
    "statistical": (style.PALETTE[1], "D", "-."),
}
CAPTION = (
    "Each series against its smallest size: E' = hardware x statistical, on logarithmic axes, where the "
    "two distances from 1 (dashed) add up. Times are those of the fastest system of a size; samples are means over "
    "all systems of the size."
)


def draw_scaling_efficiency(series: Sequence[ScalingSeries], title: str) -> CaptionedFigure:
    """Draw scaling efficiency and its hardware and statistical factors by number of accelerators, per workload."""
    rows = -(-len(series) // PANEL_COLUMNS)
    figure, panels = style.create_figure(rows, PANEL_COLUMNS, 0.9 + 2.3 * rows, sharey=True)
    style.add_title_and_footer(figure, title, NOT_OFFICIAL_NOTICE)
    for axes, each in zip(panels, series, strict=False):
        _draw_efficiency_panel(axes, each)
    for axes in panels[len(series) :]:
        axes.remove()
    style.apply_layout(figure)  # fixes the axis limits that the curve names are placed by
    for axes, each in zip(panels, series, strict=False):
        ends = {name: (values[-1], STYLES[name][0]) for name, values in _scaling_efficiency_curves(each).items()}
        draw_right_edge_labels(axes, ends, font_points=8)
    return CaptionedFigure("factors-by-size", title, CAPTION, _make_efficiency_table(series), figure)


def _scaling_efficiency_curves(scaling_series: ScalingSeries) -> dict[str, list[float]]:
    factors = scaling_series.compute_efficiencies()
    return {
        "E'": [each.efficiency for each in factors],
        "hardware": [each.hardware or each.efficiency for each in factors],
        "statistical": [each.statistical or 1.0 for each in factors],
    }


def _draw_efficiency_panel(axes: Axes, series: ScalingSeries) -> None:
    counts = series.accelerator_counts
    axes.axhline(1, color=style.BASELINE_GREY, linestyle="--", linewidth=1)
    for name, values in _scaling_efficiency_curves(series).items():
        tint, shape, dash = STYLES[name]
        axes.plot(counts, values, color=tint, marker=shape, linestyle=dash, markersize=4.5, linewidth=1.4)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_title(f"{series.name}, {series.accelerator}")
    set_up_accelerator_count_axis(axes, counts)


def _make_efficiency_table(series: Sequence[ScalingSeries]) -> pd.DataFrame:
    return pd.DataFrame(
        {"benchmark": each.benchmark, "accelerators": count, "batch": size.batch, **vars(size_factors)}
        for each in series
        for count, size, size_factors in zip(
            each.accelerator_counts, each.points, each.compute_efficiencies(), strict=True
        )
    )
