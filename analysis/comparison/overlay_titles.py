"""Titles and captions of the figures that compare runs."""

from collections.abc import Callable, Mapping, Sequence
from math import isclose

from analysis.comparison.compared_curves import ComparedRunsAndCurves
from analysis.comparison.curves import ComparedSpeedupCurve, ComparedSpeedupPoint
from analysis.comparison.differing_settings import differing_settings
from analysis.report.wording import (
    capitalise_first_letter,
    format_number,
    format_percentage,
    format_worker_count,
    join_names,
)

EQUALITY_RELATIVE_TOLERANCE = 1e-6  # sums of the same numbers in another order differ by less


def format_speedup_title(overlay: ComparedRunsAndCurves) -> str:
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


def format_efficiency_title(overlay: ComparedRunsAndCurves) -> str:
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


def format_time_title(overlay: ComparedRunsAndCurves, seconds_by_curve_point: dict[tuple[str, int], float]) -> str:
    """Return the title of the figure of times to the target, which names the shortest time."""
    return _format_min_value_title(
        overlay,
        {f"{name} on {workers}": seconds for (name, workers), seconds in seconds_by_curve_point.items()},
        lambda name, value: f"{name} reaches the target first, in {value} s",
        "fewest seconds to the target",
    )


def format_final_loss_title(overlay: ComparedRunsAndCurves, final_loss_by_curve_name: dict[str, float]) -> str:
    """Return the title of the loss figure, which names the lowest loss at the end."""
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


def describe_speedup_bases(overlay: ComparedRunsAndCurves) -> str:
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
