"""E' and its two factors against the number of accelerators."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from analysis.figures.base import Drawing
from analysis.figures.drawing.labels import label_right_edge
from analysis.figures.drawing.style import (
    BASELINE_GREY,
    FOREGROUND,
    PALETTE,
    add_title_and_footer,
    apply_layout,
    create_figure,
)
from analysis.mlperf.figures.frame import NOT_OFFICIAL, counts_axis
from analysis.mlperf.series import Series

COLUMNS = 2
LOOKS = {"E'": (FOREGROUND, "o", "-"), "hardware": (PALETTE[0], "s", "--"), "statistical": (PALETTE[1], "D", "-.")}
CAPTION = (
    "Each series against its smallest size: E' = hardware x statistical, on logarithmic axes, where the "
    "two distances from 1 (dashed) add up. A size is the fastest system of it; samples are means over its systems."
)


def factors(series: Sequence[Series], title: str) -> Drawing:
    """One panel per workload."""
    rows = -(-len(series) // COLUMNS)
    figure, panels = create_figure(rows, COLUMNS, 0.9 + 2.3 * rows, sharey=True)
    add_title_and_footer(figure, title, NOT_OFFICIAL)
    for axes, each in zip(panels, series, strict=False):
        _panel(axes, each)
    for axes in panels[len(series) :]:
        axes.remove()
    apply_layout(figure)  # settles the limits that names are placed by
    for axes, each in zip(panels, series, strict=False):
        label_right_edge(
            axes, {name: (values[-1], LOOKS[name][0]) for name, values in _lines(each).items()}, font_points=8
        )
    return Drawing("factors-by-size", title, CAPTION, _table(series), figure)


def _lines(series: Series) -> dict[str, list[float]]:
    found = series.factors()
    return {
        "E'": [each.efficiency for each in found],
        "hardware": [each.hardware for each in found],
        "statistical": [each.statistical or 1.0 for each in found],
    }


def _panel(axes: Axes, series: Series) -> None:
    axes.axhline(1, color=BASELINE_GREY, linestyle="--", linewidth=1)
    for name, values in _lines(series).items():
        tint, shape, dash = LOOKS[name]
        axes.plot(series.counts, values, color=tint, marker=shape, linestyle=dash, markersize=4.5, linewidth=1.4)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_title(f"{series.name}, {series.accelerator}")
    counts_axis(axes, series.counts)


def _table(series: Sequence[Series]) -> pd.DataFrame:
    return pd.DataFrame(
        {"benchmark": each.benchmark, "accelerators": count, "batch": size.batch, **vars(found)}
        for each in series
        for count, size, found in zip(each.counts, each.sizes, each.factors(), strict=True)
    )
