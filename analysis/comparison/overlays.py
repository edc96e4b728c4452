"""Figures that compare several runs: speedup, efficiency, time to target and loss.

All runs are drawn in the same panel.

Each strategy has a colour, and each run has a line style.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isclose, isfinite

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from analysis.comparison.curves import ComparedRun, ComparedSpeedupCurve, ComparedSpeedupPoint
from analysis.comparison.differing_settings import differing_settings
from analysis.figures.base import CaptionedFigure
from analysis.figures.drawing.style import (
    BASELINE_GREY,
    LINE_STYLES,
    MARKERS,
    PALETTE,
    add_title_and_footer,
    count_legend_rows,
    create_figure,
    figure_style_context,
    start_axes_at_zero,
)
from analysis.reading.run_table import TrialLogTables
from analysis.report.wording import (
    TIMES_SIGN,
    capitalise_first_letter,
    format_number,
    format_percentage,
    format_worker_count,
    join_names,
)
from analysis.results.trial_result import TrialResult

LINE_STYLE_NAMES = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dash-dotted"}
MAX_LOSS_CURVE_POINTS = 400  # points are dropped from longer curves, because a page has no more pixels
OVERLAY_HEIGHT_IN = 4.2
EQUALITY_RELATIVE_TOLERANCE = 1e-6  # sums of the same numbers in another order differ by less


@dataclass(frozen=True)
class ComparedRunsAndCurves:
    """Runs and speedup curves that are drawn in the same figures.

    Methods give the colour and marker of each curve and the line style of each run.
    """

    runs: Sequence[ComparedRun]
    curves: Sequence[ComparedSpeedupCurve]

    @property
    def run_speedup_curves(self) -> list[ComparedSpeedupCurve]:
        """Speedup curves of the compared runs, without those of published MLPerf results."""
        return [curve for curve in self.curves if not curve.is_from_mlperf]

    def strategy_colour(self, strategy: str) -> str:
        """Return the colour that a strategy has in all runs and figures.

        Baselines and published series are grey.
        """
        strategies = list(dict.fromkeys(curve.strategy for curve in self.run_speedup_curves))
        return PALETTE[strategies.index(strategy) % len(PALETTE)] if strategy in strategies else BASELINE_GREY

    def curve_colour(self, compared_curve: ComparedSpeedupCurve) -> str:
        """Return the colour of a speedup curve.

        A curve has the colour of its strategy. Published MLPerf results are grey.
        """
        return BASELINE_GREY if compared_curve.is_from_mlperf else self.strategy_colour(compared_curve.strategy)

    def curve_marker(self, compared_curve: ComparedSpeedupCurve) -> str:
        """Return the marker shape of a curve, which distinguishes curves that are printed without colours."""
        return MARKERS[self.curves.index(compared_curve) % len(MARKERS)]

    def run_line_style(self, letter: str) -> str:
        """Return the line style of a run, given its letter.

        Published series have no letter and get the last style.
        """
        letters = [run.letter for run in self.runs]
        return LINE_STYLES[letters.index(letter) % (len(LINE_STYLES) - 1)] if letter in letters else LINE_STYLES[-1]

    @property
    def curve_colours(self) -> dict[str, str]:
        """Colour of each speedup curve in the figures, by name of the curve."""
        return {curve.name: self.curve_colour(curve) for curve in self.curves}

    @property
    def curve_line_styles(self) -> dict[str, str]:
        """Line style of each speedup curve in the figures, by name of the curve."""
        return {curve.name: self.run_line_style(curve.run_letter) for curve in self.curves}

    @property
    def undrawn_curve_names(self) -> list[str]:
        """Names of the speedup curves with a single number of workers, which are not drawn."""
        return [
            f"{run.letter} {curve.description}"
            for run in self.runs
            for curve in run.summary.curves
            if not curve.points[1:]
        ]

    @property
    def figure_footer_text(self) -> str:
        """Footer text of all figures: scenario, verdict, engine and time dilation of every run."""
        lines = [
            f"{run.letter}: {run.summary.scenario} {run.summary.run}, {run.summary.verdict}, "
            f"{run.summary.engine} engine, dilation {run.summary.dilation:g}"
            for run in self.runs
        ]
        return "\n".join([*lines, "MLPerf-style; not an MLPerf result"])


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
    title = _speedup_title(overlay)
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
    caption = f"S = T(base) / T(N); bars: 95% intervals; dashed grey: ideal. {_describe_speedup_bases(overlay)}"
    return CaptionedFigure("speedup", title, caption, make_curve_table(overlay.curves), figure)


def draw_efficiency_overlay(overlay: ComparedRunsAndCurves) -> CaptionedFigure | None:
    """Draw the efficiency (speedup per worker) of all runs.

    x axis: number of workers relative to a curve's base.
    """
    if not overlay.curves:
        return None
    title = _format_efficiency_title(overlay)
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
        f"{definition} {_describe_speedup_bases(overlay)}",
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
    title = _format_time_title(overlay, seconds)
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
        f"Olympic means; bars: 95% intervals. Curves without a target are left out. {_describe_speedup_bases(overlay)}"
    )
    return CaptionedFigure("time_to_target", title, caption, make_curve_table(curves), figure)


def draw_loss_overlay(overlay: ComparedRunsAndCurves) -> CaptionedFigure | None:
    """Draw the training loss of every strategy over virtual time.

    Each curve shows the first repeat on the largest number of workers of the strategy.
    """
    loss_tables = [table for run in overlay.runs for table in _loss_curve_tables(run)]
    if not loss_tables:
        return None
    data = pd.concat(loss_tables, ignore_index=True)
    final_losses = data.groupby("name", sort=False)["loss"].last()
    names = list(dict.fromkeys(data["name"]))
    title = _make_final_loss_title(overlay, {name: float(final_losses[name]) for name in names})
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


def make_curve_table(compared_curves: Sequence[ComparedSpeedupCurve]) -> pd.DataFrame:
    """Return the points of speedup curves as a table.

    The table has one row per curve and number of workers.
    """
    return pd.DataFrame([dict(_curve_table_row(curve, point)) for curve in compared_curves for point in curve.points])


def _curve_table_row(curve: ComparedSpeedupCurve, point: ComparedSpeedupPoint) -> Iterator[tuple[str, object]]:
    yield from (("line", curve.name), ("base", curve.base_description), ("of", curve.time_description))
    yield from (("workers", point.workers), ("relative", point.relative_workers), ("speedup", point.factors.speedup))
    yield from zip(("ci_low", "ci_high"), point.speedup_ci or (None, None), strict=True)
    yield from (("efficiency", point.factors.efficiency), ("hardware_efficiency", point.factors.hardware))
    yield from (("statistical_efficiency", point.factors.statistical), ("seconds", point.seconds), ("runs", point.runs))


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


def _speedup_title(overlay: ComparedRunsAndCurves) -> str:
    """Return the title of the speedup figure, which names the curves with the largest speedup.

    The title names a run and, if there are any, published MLPerf results.

    Runs are compared at the largest ratio of workers to base workers that all runs have.
    """
    run_curves = overlay.run_speedup_curves
    published_curves = [curve for curve in overlay.curves if curve.is_from_mlperf]
    if not run_curves:
        return _describe_largest_speedup(published_curves)
    relative_size, points = _find_common_worker_ratio(run_curves)
    speedups = {name: point.factors.speedup for name, point in points.items()}
    best, best_reach = _join_names_with_value(speedups, max(speedups.values()), "reach")
    size = format_worker_count(points[best].workers)
    finding = f"{best_reach} the largest mean speedup: {format_number(speedups[best])} on {size}"
    if len(run_curves) > 1:
        finding = (
            f"at {relative_size:g} times the workers of the base, {finding}"
            if relative_size
            else f"no size is shared: {_describe_largest_speedup(run_curves)}"
        )
    if published_curves:
        return f"Of the runs, {finding}; {_describe_largest_speedup(published_curves)}"
    return capitalise_first_letter(finding)


def _describe_largest_speedup(curves: Sequence[ComparedSpeedupCurve]) -> str:
    best = max(curves, key=lambda curve: curve.points[-1].factors.speedup)
    last = best.points[-1]
    name = best.strategy if best.is_from_mlperf else best.name
    return f"{name} reaches a speedup of {format_number(last.factors.speedup)} on {last.workers:,}"


def _format_efficiency_title(overlay: ComparedRunsAndCurves) -> str:
    """Return the title of the efficiency figure, which states the curve with the highest efficiency.

    Efficiency falls with the number of workers. Curves are therefore compared at the largest ratio of workers to base
    workers that all curves have.
    """
    curves = overlay.run_speedup_curves or list(overlay.curves)
    relative_size, points = _find_common_worker_ratio(curves)
    if relative_size:
        efficiencies = {name: point.factors.efficiency for name, point in points.items()}
        best, best_keep = _join_names_with_value(efficiencies, max(efficiencies.values()), "keep")
        efficiency = f"{format_percentage(efficiencies[best])} on {points[best].workers}"
        if len(curves) == 1:
            return f"{best_keep} an efficiency of {efficiency}"
        return (
            f"At {relative_size:g} times the workers of the base, {best_keep} the highest mean efficiency: {efficiency}"
        )
    last_points = [(curve.name, curve.points[-1]) for curve in curves]
    efficiencies_at_largest = [
        f"{name} {format_percentage(point.factors.efficiency)} on {point.workers}" for name, point in last_points
    ]
    return f"No size is shared; efficiency at the largest: {', '.join(efficiencies_at_largest)}"


def _find_common_worker_ratio(
    curves: Sequence[ComparedSpeedupCurve],
) -> tuple[float | None, dict[str, ComparedSpeedupPoint]]:
    """Return the largest worker ratio at which every curve has a value, and the points there.

    The ratio is the number of workers divided by that of the base.

    If the curves share no ratio, return None and the last point of each curve.
    """
    points_by_curve = {
        curve.name: {point.relative_workers: point for point in curve.points if point.relative_workers > 1}
        for curve in curves
    }
    shared_sizes = set.intersection(*map(set, points_by_curve.values()))
    if not shared_sizes:
        return None, {curve.name: curve.points[-1] for curve in curves}
    return max(shared_sizes), {name: points[max(shared_sizes)] for name, points in points_by_curve.items()}


def _format_time_title(overlay: ComparedRunsAndCurves, seconds_by_curve_point: dict[tuple[str, int], float]) -> str:
    return _format_min_value_title(
        overlay,
        {f"{name} on {workers}": seconds for (name, workers), seconds in seconds_by_curve_point.items()},
        lambda name, value: f"{name} reaches the target first, in {value} s",
        "fewest seconds to the target",
    )


def _make_final_loss_title(overlay: ComparedRunsAndCurves, final_loss_by_curve_name: dict[str, float]) -> str:
    return _format_min_value_title(
        overlay,
        final_loss_by_curve_name,
        lambda name, value: f"{name} ends with the lowest loss, {value}",
        "lowest loss at the end",
    )


def _format_min_value_title(
    overlay: ComparedRunsAndCurves,
    value_by_name: dict[str, float],
    title_formatter: Callable[[str, str], str],
    quantity_name: str,
) -> str:
    """Return a figure title that states which run and strategy have the smallest value.

    The smallest value is, for example, the lowest loss.

    If the runs differ in settings that affect the values, the title states the smallest value of each run and the
    settings instead. Every name begins with the letter of a run.
    """
    by_falling_value = sorted(value_by_name, key=lambda name: -value_by_name[name])
    best_name_of_run = {name.partition(" ")[0]: name for name in by_falling_value}
    settings = differing_settings([run for run in overlay.runs if run.letter in best_name_of_run])
    if not settings:
        smallest = min(value_by_name.values())
        names = _names_with_value(value_by_name, smallest)
        if len(names) > 1:
            return capitalise_first_letter(f"{quantity_name}: {format_number(smallest)}, shared by {join_names(names)}")
        return title_formatter(names[0], format_number(smallest))
    values_of_runs = ", ".join(
        f"{run_letter} {format_number(value_by_name[name])} ({name.partition(' ')[2]})"
        for run_letter, name in sorted(best_name_of_run.items())
    )
    return f"Runs differ in {join_names(settings)}, so they are not ranked; {quantity_name}: {values_of_runs}"


def _join_names_with_value(
    value_by_name: Mapping[str, float], wanted_value: float, clause_verb: str
) -> tuple[str, str]:
    """Return the first name with a value, and a clause on all names with this value.

    The value is `wanted_value`. The verb of the clause is `clause_verb`.

    For example "A ring and B ring scale": names with equal values are listed together and not ranked.
    """
    names = _names_with_value(value_by_name, wanted_value)
    verb_ending = ("es" if clause_verb.endswith("h") else "s") if len(names) == 1 else ""
    return names[0], f"{join_names(names)} {clause_verb}{verb_ending}"


def _names_with_value(value_by_name: Mapping[str, float], value: float) -> list[str]:
    return [name for name, other in value_by_name.items() if isclose(other, value, rel_tol=EQUALITY_RELATIVE_TOLERANCE)]


def _describe_speedup_bases(overlay: ComparedRunsAndCurves) -> str:
    """Return a caption that describes the base of every speedup curve.

    For each curve, the caption names the base, what the times measure, and the number of runs.
    """
    curves_of_base: dict[str, list[str]] = {}
    for curve in overlay.curves:
        base = f"{curve.base_description} ({curve.time_description}; {_describe_repeat_counts(curve)})"
        curves_of_base.setdefault(base, []).append(curve.name)
    bases = "; ".join(f"{', '.join(curve_names)}: {base}" for base, curve_names in curves_of_base.items())
    if not overlay.undrawn_curve_names:
        return f"Bases: {bases}."
    return f"Bases: {bases}. Not drawn, because they have a single size: {', '.join(overlay.undrawn_curve_names)}."


def _describe_repeat_counts(compared_curve: ComparedSpeedupCurve) -> str:
    counts = sorted({point.runs for point in compared_curve.points if point.runs})
    if not counts:
        return "number of runs not recorded"
    if len(counts) > 1:
        return f"{counts[0]} to {counts[-1]} runs each"
    return f"{counts[0]} run{'s' * (counts[0] > 1)} each"


def _loss_curve_tables(run: ComparedRun) -> Iterator[pd.DataFrame]:
    """Yield one loss curve for each strategy and combination of swept values of a run.

    Each curve shows the first repeat on the most workers.
    """
    first_repeats = [result for result in run.summary.trials if result.is_finished and result.repeat == 0]
    largest: dict[tuple[str, str], TrialResult] = {}
    for result in first_repeats:
        key = (result.strategy, result.condition)
        largest[key] = max(largest.get(key, result), result, key=lambda candidate: candidate.workers)
    result_by_id = {result.id: result for result in largest.values()}
    for trial in run.table.trials:
        if trial.plan.trial in result_by_id:
            yield from _loss_curve_table(run, trial, result_by_id[trial.plan.trial])


def _loss_curve_table(run: ComparedRun, trial: TrialLogTables, result: TrialResult) -> Iterator[pd.DataFrame]:
    """Yield the loss curve of one trial as a table.

    A long curve is thinned.

    Yield nothing if the trial logged no loss.
    """
    evaluations = trial.evals[trial.evals["metric"] == "loss"]
    if evaluations.empty:
        return
    thinned = evaluations.iloc[:: max(1, len(evaluations) // MAX_LOSS_CURVE_POINTS)]
    condition_suffix = f", {result.condition}" if result.condition else ""
    yield pd.DataFrame(
        {
            "run": run.letter,
            "name": f"{run.letter} {result.strategy} on {result.workers}{condition_suffix}",
            "strategy": f"{result.strategy} ({result.condition})" if result.condition else result.strategy,
            "time_s": thinned["time_s"].astype(float),
            "loss": thinned["value"].astype(float),
        }
    )
