"""Figure `goodput`: goodput over the mean time between failures and over the checkpoint interval, for each policy."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator, PercentFormatter, StrMethodFormatter

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.drawing import style
from analysis.laws.checkpoint_interval import daly_interval_s, young_interval_s
from analysis.report.wording import (
    capitalise_first_letter,
    describe_free_recovery,
    format_number,
    format_quantity,
    format_worker_count,
    join_names,
)
from analysis.results.checkpoint_interval import CheckpointInterval, IntervalUnit, declared_interval, interval_seconds
from analysis.results.failure_series import RESTORE, FailureSeries, list_failure_series
from analysis.statistics.centre import Floats

CURVE_POINTS = 60  # places at which a closed form is evaluated
MARGIN = 1.15  # factor by which the x axis extends beyond the data
HEIGHT_IN, LEGEND_ROW_HEIGHT_IN = 3.5, 0.2
MAX_DESCRIBED = 3  # curves that a title describes
MAX_COUNTED = 12  # groups whose number of failures the caption states
MEASURED, CLOSED_FORM = "mean of the trials", "closed form"
CAPTION = (
    "Goodput: share of the time of all workers in steps that count and in evaluations. Dots: single trials. Dashed: "
    "closed form of the policy (restore: Daly 2006) with the mean detection, recovery, step and checkpoint times that "
    "the trials measured; a policy without measured failures has none. The mean time between failures is that which "
    "the scenario declares, of all nodes together."
)
INTERVAL_CAPTION = "Vertical lines: checkpoint intervals of Young (dotted) and Daly (dash-dotted)."
SECONDS_CAPTION = (
    "Intervals in seconds are those that the scenario declares. A checkpoint is written at the end of an exchange, so "
    "it comes up to two exchange periods later."
)
INTERVAL_LABELS: dict[IntervalUnit, str] = {
    "steps": "checkpoint interval, steps",
    "s": "checkpoint interval, virtual s",
}


class GoodputPoint(NamedTuple):
    """Trials of a series at one failure rate and one checkpoint interval."""

    series: FailureSeries
    mtbf_s: float
    interval: CheckpointInterval | None
    shares: tuple[float, ...]
    failure_counts: tuple[int, ...]  # of the same trials

    @property
    def mean(self) -> float:
        """Mean goodput of the trials."""
        return float(np.mean(self.shares))


Curve = list[GoodputPoint]  # in the order of x


class GoodputPanel(NamedTuple):
    """Curves over one x axis."""

    curves: list[Curve]
    read_x: Callable[[GoodputPoint], float]
    x_label: str
    draw_closed_form: Callable[[Axes, Curve, Floats, str], None]  # arguments: axes, curve, x of the grid, colour
    interval_unit: IntervalUnit | None = None  # None: x is the mean time between failures


def draw_goodput(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw the goodput of every trial over the mean time between failures, and over swept checkpoint intervals.

    Return None unless a failure rate or a checkpoint interval varies.
    """
    points = [point for series in list_failure_series(run.summary.trials) for point in _list_points(series)]
    all_panels = [_make_rate_panel(points), *(_make_interval_panel(points, unit) for unit in INTERVAL_LABELS)]
    panels = [panel for panel in all_panels if panel.curves]
    if not panels:
        return None
    names = list(dict.fromkeys(_curve_name(curve, panel) for panel in panels for curve in panel.curves))
    colours = {name: style.PALETTE[index % len(style.PALETTE)] for index, name in enumerate(names)}
    markers = {name: style.MARKERS[index % len(style.MARKERS)] for index, name in enumerate(names)}
    title = _figure_title(panels[0])
    legend_colours = colours | {MEASURED: style.FOREGROUND, CLOSED_FORM: style.FOREGROUND}
    height_in = HEIGHT_IN + LEGEND_ROW_HEIGHT_IN * style.count_legend_rows(legend_colours)
    figure, axes_of_panels = style.create_figure(1, len(panels), height_in, sharey=True)
    line_styles = {MEASURED: "-", CLOSED_FORM: "--"}
    style.add_run_title_and_footer(figure, run.summary, title, legend_colours, markers, line_styles)
    for axes, panel in zip(axes_of_panels, panels, strict=True):
        for curve in panel.curves:
            name = _curve_name(curve, panel)
            _draw_curve(axes, panel, curve, colours[name], markers[name])
        _format_axes(axes, panel)
    axes_of_panels[0].set_ylabel("goodput")
    axes_of_panels[0].set_ylim(bottom=0, top=1.02)
    caption = f"{_figure_caption(panels)} {_describe_failure_counts(points)}"
    if free_recovery := describe_free_recovery(run.summary.engine):
        caption += f" {capitalise_first_letter(free_recovery)}."
    return CaptionedFigure("goodput", title, caption, _figure_data(points), figure)


def _figure_caption(panels: Sequence[GoodputPanel]) -> str:
    units = {panel.interval_unit for panel in panels} - {None}
    return " ".join([CAPTION, *([INTERVAL_CAPTION] if units else []), *([SECONDS_CAPTION] if "s" in units else [])])


def _list_points(series: FailureSeries) -> list[GoodputPoint]:
    measured: dict[tuple[float, CheckpointInterval | None], list[tuple[float, int]]] = {}
    for trial in series.trials:
        place = (trial.failure_interval_s or 0.0, declared_interval(trial))
        measured.setdefault(place, []).append((trial.goodput.share or 0.0, len(trial.node_losses)))
    return [GoodputPoint(series, *place, *map(tuple, zip(*found, strict=True))) for place, found in measured.items()]


def _make_rate_panel(points: Sequence[GoodputPoint]) -> GoodputPanel:
    curves = _list_curves(points, lambda point: (point.series.key, point.interval), _read_mtbf)
    return GoodputPanel(curves, _read_mtbf, "mean time between failures, virtual s", _draw_closed_form_over_rates)


def _make_interval_panel(points: Sequence[GoodputPoint], unit: IntervalUnit) -> GoodputPanel:
    with_checkpoints = [point for point in points if point.interval and point.interval.unit == unit]
    curves = _list_curves(with_checkpoints, lambda point: (point.series.key, point.mtbf_s), _read_interval)
    return GoodputPanel(curves, _read_interval, INTERVAL_LABELS[unit], _draw_closed_form_over_intervals, unit)


def _read_mtbf(point: GoodputPoint) -> float:
    return point.mtbf_s


def _read_interval(point: GoodputPoint) -> float:
    return point.interval.size if point.interval else 0.0


def _list_curves(
    points: Sequence[GoodputPoint], key: Callable[[GoodputPoint], object], read_x: Callable[[GoodputPoint], float]
) -> list[Curve]:
    """Return the points with equal keys as curves; curves with a single x are left out."""
    curves: dict[object, Curve] = {}
    for point in sorted(points, key=read_x):
        curves.setdefault(key(point), []).append(point)
    return [curve for curve in curves.values() if len(curve) > 1]


def _curve_name(curve: Curve, panel: GoodputPanel) -> str:
    """Return the policy of a curve, with what distinguishes the curve from the others of its panel."""
    series, others = curve[0].series, [other[0].series for other in panel.curves]
    has_strategies = len({other.strategy for other in others}) > 1
    has_sizes = len({other.workers for other in others}) > 1
    has_several = sum(other.key == series.key for other in others) > 1
    fixed = (
        f"a failure every {format_number(curve[0].mtbf_s)} s"
        if panel.interval_unit
        else f"a checkpoint every {curve[0].interval}"
    )
    details = [series.strategy * has_strategies, format_worker_count(series.workers) * has_sizes, fixed * has_several]
    text = ", ".join(filter(None, details))
    return f"{series.policy} ({text})" if text else series.policy


def _draw_curve(axes: Axes, panel: GoodputPanel, curve: Curve, colour: str, marker: str) -> None:
    """Draw the trials of a curve as dots, their means as a line, and the closed form."""
    places = [panel.read_x(point) for point in curve]
    grid = np.geomspace(min(places) / MARGIN, max(places) * MARGIN, CURVE_POINTS)
    panel.draw_closed_form(axes, curve, grid, colour)
    axes.plot(places, [point.mean for point in curve], color=colour, marker=marker, markersize=6)
    for place, point in zip(places, curve, strict=True):
        axes.plot([place] * len(point.shares), point.shares, "o", color=colour, markersize=3, alpha=0.6)


def _expected_goodput(point: GoodputPoint, mtbf_s: Floats) -> Floats | None:
    """Return the goodput by the closed form, with the checkpoint interval of a point."""
    interval = point.interval
    if interval is None:
        return point.series.expected_goodput(mtbf_s, None)
    return point.series.expected_goodput(mtbf_s, interval.size, interval.unit)


def _draw_closed_form_over_rates(axes: Axes, curve: Curve, grid: Floats, colour: str) -> None:
    expected = _expected_goodput(curve[0], grid)
    if expected is not None:
        axes.plot(grid, expected, "--", color=colour)


def _draw_closed_form_over_intervals(axes: Axes, curve: Curve, grid: Floats, colour: str) -> None:
    """Draw the closed form, and the intervals of Young and Daly as vertical lines."""
    series, mtbf_s, interval = curve[0].series, np.array(curve[0].mtbf_s), curve[0].interval
    if interval is None or series.policy != RESTORE:
        return
    expected, costs = series.expected_goodput(mtbf_s, grid, interval.unit), series.costs
    if expected is None or costs is None:
        return
    axes.plot(grid, expected, "--", color=colour)
    for interval_s, line_style in ((young_interval_s, ":"), (daly_interval_s, "-.")):
        unit_s = float(interval_seconds(1.0, interval.unit, costs.step_s))
        best_interval = float(interval_s(costs.checkpoint_s, mtbf_s)) / unit_s
        if best_interval > 0:
            axes.axvline(best_interval, color=colour, linestyle=line_style, linewidth=1.2)


def _format_axes(axes: Axes, panel: GoodputPanel) -> None:
    axes.set_xscale("log")
    axes.set_xticks(sorted({panel.read_x(point) for curve in panel.curves for point in curve}))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xlabel(panel.x_label)


def _figure_title(panel: GoodputPanel) -> str:
    """Return a title on the goodput at the highest failure rate that all curves share, or on the best intervals."""
    if panel.interval_unit:
        return "; ".join(_describe_best_interval(curve, panel) for curve in panel.curves[:MAX_DESCRIBED])
    shared = set.intersection(*({point.mtbf_s for point in curve} for curve in panel.curves))
    if not shared:
        return "Goodput over the mean time between failures"
    mtbf_s = min(shared)
    found = [(point.mean, curve) for curve in panel.curves for point in curve if point.mtbf_s == mtbf_s]
    found.sort(key=lambda pair: -pair[0])
    texts = [f"{format_quantity(mean, '%')} with {_curve_name(curve, panel)}" for mean, curve in found]
    shown = texts if len(texts) <= MAX_DESCRIBED else [texts[0], texts[-1]]
    return f"With a failure every {format_number(mtbf_s)} s on average, mean goodput is {join_names(shown)}"


def _describe_best_interval(curve: Curve, panel: GoodputPanel) -> str:
    best = max(curve, key=lambda point: point.mean)
    name, share = _curve_name(curve, panel), format_quantity(best.mean, "%")
    return f"mean goodput of {name} is highest ({share}) with a checkpoint every {best.interval}"


def _describe_failure_counts(points: Sequence[GoodputPoint]) -> str:
    """Return a sentence on the number of nodes that were lost in each group of trials, or on its range."""
    if len(points) > MAX_COUNTED:
        counts = [sum(point.failure_counts) for point in points]
        return (
            f"Nodes lost by failures: {min(counts)} to {max(counts)} in each group of trials (column group_failures)."
        )
    texts = [f"{_name_point(point, points)}: {sum(point.failure_counts)}" for point in points]
    return f"Nodes lost by failures, over all repeats: {'; '.join(texts)}."


def _name_point(point: GoodputPoint, points: Sequence[GoodputPoint]) -> str:
    """Return the policy and failure rate of a point, with what else distinguishes it from the other points."""
    has_strategies = len({other.series.strategy for other in points}) > 1
    has_sizes = len({other.series.workers for other in points}) > 1
    has_intervals = len({other.interval for other in points if other.series.key == point.series.key}) > 1
    details = [
        f"one every {format_number(point.mtbf_s)} s declared",
        point.series.strategy * has_strategies,
        format_worker_count(point.series.workers) * has_sizes,
        f"a checkpoint every {point.interval}" * has_intervals,
    ]
    return f"{point.series.policy} ({', '.join(filter(None, details))})"


def _figure_data(points: Sequence[GoodputPoint]) -> pd.DataFrame:
    rows = [
        (*_describe_point(point), share, _expected_share(point), failures, sum(point.failure_counts))
        for point in points
        for share, failures in zip(point.shares, point.failure_counts, strict=True)
    ]
    columns = [
        "strategy",
        "policy",
        "workers",
        "failure_interval_s",
        "checkpoint_interval_steps",
        "checkpoint_interval_s",
    ]
    return pd.DataFrame(rows, columns=[*columns, "goodput", "expected_goodput", "failures", "group_failures"])


def _describe_point(point: GoodputPoint) -> tuple[str, str, int, float, float | None, float | None]:
    sizes = [
        point.interval.size if point.interval and point.interval.unit == unit else None for unit in INTERVAL_LABELS
    ]
    return *point.series.key, point.mtbf_s, sizes[0], sizes[1]


def _expected_share(point: GoodputPoint) -> float | None:
    expected = _expected_goodput(point, np.array(point.mtbf_s))
    return None if expected is None else float(expected)
