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
from analysis.report.wording import format_number, format_quantity, format_worker_count, join_names
from analysis.results.failure_series import RESTORE, FailureSeries, list_failure_series
from analysis.statistics.centre import Floats

CURVE_POINTS = 60  # places at which a closed form is evaluated
MARGIN = 1.15  # factor by which the x axis extends beyond the data
HEIGHT_IN, LEGEND_ROW_HEIGHT_IN = 3.5, 0.2
MAX_DESCRIBED = 3  # curves that a title describes
MEASURED, CLOSED_FORM = "mean of the trials", "closed form"
CAPTION = (
    "Goodput: share of the time of all workers in steps that count and in evaluations. Dots: single trials. Dashed: "
    "closed form of the policy (restore: Daly 2006) with the mean detection, recovery, step and checkpoint times that "
    "the trials measured; a policy without measured failures has none. The mean time between failures is that which "
    "the scenario declares, of all nodes together."
)
INTERVAL_CAPTION = "Vertical lines: checkpoint intervals of Young (dotted) and Daly (dash-dotted)."


class GoodputPoint(NamedTuple):
    """Trials of a series at one failure rate and one checkpoint interval."""

    series: FailureSeries
    mtbf_s: float
    interval_steps: int | None
    shares: tuple[float, ...]

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


def draw_goodput(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw the goodput of every trial over the mean time between failures, and over swept checkpoint intervals.

    Return None unless a failure rate or a checkpoint interval varies.
    """
    points = [point for series in list_failure_series(run.summary.trials) for point in _list_points(series)]
    panels = [panel for panel in (_make_rate_panel(points), _make_interval_panel(points)) if panel.curves]
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
    has_intervals = any(panel.read_x is _read_interval for panel in panels)
    caption = f"{CAPTION} {INTERVAL_CAPTION}" if has_intervals else CAPTION
    return CaptionedFigure("goodput", title, caption, _figure_data(points), figure)


def _list_points(series: FailureSeries) -> list[GoodputPoint]:
    shares: dict[tuple[float, int | None], list[float]] = {}
    for trial in series.trials:
        place = (trial.failure_interval_s or 0.0, trial.checkpoint_interval_steps)
        shares.setdefault(place, []).append(trial.goodput.share or 0.0)
    return [GoodputPoint(series, *place, tuple(found)) for place, found in shares.items()]


def _make_rate_panel(points: Sequence[GoodputPoint]) -> GoodputPanel:
    curves = _list_curves(points, lambda point: (point.series.key, point.interval_steps), _read_mtbf)
    return GoodputPanel(curves, _read_mtbf, "mean time between failures, virtual s", _draw_closed_form_over_rates)


def _make_interval_panel(points: Sequence[GoodputPoint]) -> GoodputPanel:
    with_checkpoints = [point for point in points if point.interval_steps]
    curves = _list_curves(with_checkpoints, lambda point: (point.series.key, point.mtbf_s), _read_interval)
    return GoodputPanel(curves, _read_interval, "checkpoint interval, steps", _draw_closed_form_over_intervals)


def _read_mtbf(point: GoodputPoint) -> float:
    return point.mtbf_s


def _read_interval(point: GoodputPoint) -> float:
    return float(point.interval_steps or 0)


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
        if panel.read_x is _read_interval
        else f"a checkpoint every {curve[0].interval_steps} steps"
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


def _draw_closed_form_over_rates(axes: Axes, curve: Curve, grid: Floats, colour: str) -> None:
    expected = curve[0].series.expected_goodput(grid, curve[0].interval_steps)
    if expected is not None:
        axes.plot(grid, expected, "--", color=colour)


def _draw_closed_form_over_intervals(axes: Axes, curve: Curve, grid: Floats, colour: str) -> None:
    """Draw the closed form, and the intervals of Young and Daly as vertical lines."""
    series, mtbf_s = curve[0].series, np.array(curve[0].mtbf_s)
    expected, costs = series.expected_goodput(mtbf_s, grid), series.costs
    if expected is None or costs is None or series.policy != RESTORE:
        return
    axes.plot(grid, expected, "--", color=colour)
    for interval_s, line_style in ((young_interval_s, ":"), (daly_interval_s, "-.")):
        steps = float(interval_s(costs.checkpoint_s, mtbf_s)) / costs.step_s
        if steps > 0:
            axes.axvline(steps, color=colour, linestyle=line_style, linewidth=1.2)


def _format_axes(axes: Axes, panel: GoodputPanel) -> None:
    axes.set_xscale("log")
    axes.set_xticks(sorted({panel.read_x(point) for curve in panel.curves for point in curve}))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xlabel(panel.x_label)


def _figure_title(panel: GoodputPanel) -> str:
    """Return a title on the goodput at the highest failure rate that all curves share, or on the best intervals."""
    if panel.read_x is _read_interval:
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
    return f"mean goodput of {name} is highest ({share}) with a checkpoint every {best.interval_steps} steps"


def _figure_data(points: Sequence[GoodputPoint]) -> pd.DataFrame:
    rows = [(*_describe_point(point), share, _expected_share(point)) for point in points for share in point.shares]
    columns = ["strategy", "policy", "workers", "failure_interval_s", "checkpoint_interval_steps"]
    return pd.DataFrame(rows, columns=[*columns, "goodput", "expected_goodput"])


def _describe_point(point: GoodputPoint) -> tuple[str, str, int, float, int | None]:
    return *point.series.key, point.mtbf_s, point.interval_steps


def _expected_share(point: GoodputPoint) -> float | None:
    expected = point.series.expected_goodput(np.array(point.mtbf_s), point.interval_steps)
    return None if expected is None else float(expected)
