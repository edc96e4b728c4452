"""Figure `speedup`: speedup of every strategy against the number of workers."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.drawing import style
from analysis.figures.drawing.balance import BALANCE_LEGEND, format_rules_choosing_point, mark_chosen_worker_counts
from analysis.figures.drawing.labels import draw_right_edge_labels
from analysis.metrics.comparisons.worker_choice import RuleAndWorkerCount
from analysis.metrics.speedup import ONE_WORKER, SpeedupCurve, SpeedupPoint
from analysis.report.wording import TIMES_SIGN, format_number
from analysis.results.summary import RunSummary
from analysis.results.trial_group import TimeMetric
from services.scenario.published_curves import PublishedCurve

MAX_LISTED_BASES = 6  # more bases are summarised in the caption
MAX_PANEL_COLUMNS = 2  # with more panels in a row, no room is left for labels at the ends of curves


def draw_speedup(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw speedup by number of workers.

    There is one panel per combination of swept values, and one curve per strategy.

    Axes are logarithmic. The ideal speedup is dashed; 95% intervals are drawn where runs were repeated.
    """
    curves = [curve for curve in run.summary.curves if len(curve.points) > 1]
    if not curves:
        return None
    conditions = list(dict.fromkeys(curve.condition for curve in curves))
    columns = min(MAX_PANEL_COLUMNS, len(conditions))
    rows = -(-len(conditions) // columns)
    figure, panels = style.create_figure(rows, columns, 1.0 + 3.1 * rows, sharex=True, sharey=True)
    title = _figure_title(curves)
    style.add_run_title_and_footer(figure, run.summary, title)
    for axes, condition in zip(panels, conditions, strict=False):
        panel_curves = [curve for curve in curves if curve.condition == condition]
        _draw_speedup_panel(axes, run.summary, panel_curves)
        _draw_published_times(axes, run.summary.published_times_to_target, panel_curves)
        axes.set_title(condition)
        axes.xaxis.set_tick_params(labelbottom=True)
    for axes in panels[len(conditions) :]:
        axes.remove()
    counts = _worker_counts(curves)
    panels[0].set_xticks(counts, [str(count) for count in counts])  # all panels share the ticks
    panels[0].xaxis.set_minor_locator(NullLocator())
    style.apply_layout(figure)  # fixes the axis limits, which place the labels
    for axes, condition in zip(panels, conditions, strict=False):
        panel_curves = [curve for curve in curves if curve.condition == condition]
        curve_ends = {
            curve.display_name: (curve.points[-1].speedup, style.strategy_colour(run.summary, curve.strategy))
            for curve in panel_curves
        }
        for published_curve in run.summary.published_times_to_target:
            if _find_comparable_curves(published_curve, panel_curves):
                curve_ends["published"] = (published_curve.points[-1].measured or float("nan"), style.BASELINE_GREY)
        curve_ends["ideal"] = (max(_worker_counts(panel_curves)) / panel_curves[0].base.workers, style.BASELINE_GREY)
        draw_right_edge_labels(axes, curve_ends)
    published = [curve for curve in run.summary.published_times_to_target if _find_comparable_curves(curve, curves)]
    caption = f"{describe_speedup_baselines(curves)} {BALANCE_LEGEND}{_describe_published_times(published)}"
    return CaptionedFigure("speedup", title, caption, _make_speedup_table(curves, run.summary.balance), figure)


def _find_comparable_curves(published: PublishedCurve, curves: Sequence[SpeedupCurve]) -> list[SpeedupCurve]:
    """Return the measured curves of times to the target of the strategy beside which a published curve is drawn."""
    return [curve for curve in curves if curve.strategy == published.strategy and curve.of == "time_to_target"]


def _describe_published_times(published_curves: Sequence[PublishedCurve]) -> str:
    """Return caption text that says what N and the speedup of published curves mean; empty if there are none."""
    if not published_curves:
        return ""
    texts = [f"N = accelerators / {curve.base_workers}: {curve.source}" for curve in published_curves]
    return (
        " N of measured curves: emulated accelerators (workers). Grey crosses: published systems that train the real "
        f"workload to its own target, relative to the smallest system; {'; '.join(texts)}."
    )


def _draw_published_times(
    axes: Axes, published_curves: Sequence[PublishedCurve], curves: Sequence[SpeedupCurve]
) -> None:
    for published in published_curves:
        for curve in _find_comparable_curves(published, curves)[:1]:
            counts = [published.relative_size(point) * curve.base.workers for point in published.points]
            speedups = [point.measured or float("nan") for point in published.points]
            axes.plot(counts, speedups, ":x", color=style.BASELINE_GREY, linewidth=0.9)
            axes.set_xlabel(_describe_size_axis(published, curve))


def _describe_size_axis(published: PublishedCurve, measured: SpeedupCurve) -> str:
    """Return the label of an axis on which both curves share the multiples of their bases."""
    if published.base_workers == measured.base.workers:
        return "workers; published: accelerators"
    factor = f" x {measured.base.workers}" if measured.base.workers > 1 else ""
    return f"workers; published: accelerators / {published.base_workers}{factor}"


def describe_speedup_baselines(speedup_curves: Sequence[SpeedupCurve]) -> str:
    """Return caption text that defines speedup and names the baseline of each curve.

    The text also states the time of each baseline.

    Hoefler & Belli (SC 2015) ask for absolute times, because a speedup does not show whether the base is slow.
    """
    conditions_of_base: dict[tuple[str, float, TimeMetric], dict[str, None]] = {}
    for curve in speedup_curves:
        base = (curve.base_description, curve.base.seconds, curve.of)
        conditions_of_base.setdefault(base, {})[curve.condition] = None
    if len(conditions_of_base) > MAX_LISTED_BASES:
        bases = _describe_baselines(speedup_curves)
    else:
        is_single = len(conditions_of_base) == 1
        bases = "; ".join(
            _describe_speedup_baseline(*base, "" if is_single else " or ".join(conditions_of_base[base]))
            for base in sorted(conditions_of_base)
        )
    return f"S = T(base) / T(N). Base: {bases}. Workers are counted, servers are not."


def _describe_baselines(speedup_curves: Sequence[SpeedupCurve]) -> str:
    times_s = [curve.base.seconds for curve in speedup_curves]
    kinds = {ONE_WORKER if curve.base_description == ONE_WORKER else "its smallest size" for curve in speedup_curves}
    kind = " or ".join(sorted(kinds, reverse=True))
    range_text = f"{format_number(min(times_s))} to {format_number(max(times_s))} s"
    return f"for each curve {kind}, {range_text}; all bases are in the data"


def _describe_speedup_baseline(
    baseline_description: str, baseline_time_s: float, time_metric: TimeMetric, swept_values: str
) -> str:
    """Return text on the run that speedups are relative to.

    The text states the run's number of workers, its time and its swept values.

    `swept_values` is empty if all curves have the same base.
    """
    kind = "time to target" if time_metric == "time_to_target" else "time for the common sample budget"
    suffix = f" with {swept_values}" if swept_values else ""
    return f"{baseline_description}{suffix}, {format_number(baseline_time_s)} s ({kind})"


def _figure_title(speedup_curves: Sequence[SpeedupCurve]) -> str:
    """Return a title on the largest speedup.

    The title names the strategy, the number of workers, and the run that the speedup is relative to.
    """
    best_points = [_highest_speedup_point(curve) for curve in speedup_curves]
    index = max(range(len(speedup_curves)), key=lambda place: best_points[place].speedup)
    best, point = speedup_curves[index], best_points[index]
    if point.speedup <= 1:
        return f"No mean speedup is above 1: the largest, of {best.strategy}, is {format_number(point.speedup)}"
    size = f"on {point.workers} workers" + (f" ({best.condition})" if best.condition else "")
    speedup = f"{format_number(point.speedup)} times as fast as {best.base_description}"
    if len({curve.strategy for curve in speedup_curves}) > 1:
        return f"{best.strategy} has the largest mean speedup: {size} it is {speedup}"
    return f"{best.strategy} {size} is {speedup}"


def _highest_speedup_point(speedup_curve: SpeedupCurve) -> SpeedupPoint:
    """Return the point of a curve with the largest speedup.

    Only points with more workers than the reference run are candidates.

    The base itself is no candidate: its speedup is 1 by definition.
    """
    return max(speedup_curve.points, key=lambda point: (point.workers > speedup_curve.base.workers, point.speedup))


def _draw_speedup_panel(axes: Axes, summary: RunSummary, speedup_curves: Sequence[SpeedupCurve]) -> None:
    counts = _worker_counts(speedup_curves)
    ideal = [workers / speedup_curves[0].base.workers for workers in counts]
    axes.plot(counts, ideal, color=style.BASELINE_GREY, linestyle="--", linewidth=1)
    for curve in speedup_curves:
        colour, marker = style.strategy_colour(summary, curve.strategy), style.strategy_marker(summary, curve.strategy)
        _draw_speedup_curve(axes, curve.points, colour, marker)
        mark_chosen_worker_counts(axes, curve, summary.balance, lambda point: point.speedup)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(f"{{x:g}}{TIMES_SIGN}")
    axes.set_xlabel("workers")
    axes.set_ylabel("speedup")


def _worker_counts(speedup_curves: Sequence[SpeedupCurve]) -> list[int]:
    return sorted({point.workers for curve in speedup_curves for point in curve.points})


def _draw_speedup_curve(axes: Axes, speedup_points: Sequence[SpeedupPoint], colour: str, marker: str) -> None:
    counts, speedups = [point.workers for point in speedup_points], [point.speedup for point in speedup_points]
    axes.plot(counts, speedups, color=colour, marker=marker, markersize=5)
    for point in speedup_points:
        if point.speedup_ci:
            axes.vlines(point.workers, *point.speedup_ci, color=colour, linewidth=4, alpha=0.35)


def _make_speedup_table(curves: Sequence[SpeedupCurve], count_choices: Sequence[RuleAndWorkerCount]) -> pd.DataFrame:
    rows = [
        (
            *(curve.strategy, curve.condition, curve.of, curve.base.strategy, curve.base.workers, curve.base.seconds),
            *(point.workers, point.seconds, point.speedup, *(point.speedup_ci or (None, None)), point.runs),
            format_rules_choosing_point(curve, point, count_choices),
        )
        for curve in curves
        for point in curve.points
    ]
    columns = ["strategy", "condition", "of", "base_strategy", "base_workers", "base_s", "workers"]
    return pd.DataFrame(rows, columns=[*columns, "seconds", "speedup", "ci_low", "ci_high", "runs", "balance"])
