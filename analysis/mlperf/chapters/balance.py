"""Chapter on balance points in the report on public MLPerf results.

Balance points are numbers of accelerators that a rule chooses as still worth their cost.
"""

import numpy as np
import pandas as pd

from analysis.laws import BestBatchTrainingTimeLaw, LawFit
from analysis.mlperf.chapters.base import Chapter, ChapterTable, TableColumn
from analysis.mlperf.forecasts import fit_law_to_each_series
from analysis.mlperf.reading.run_samples import find_scaling_series
from analysis.mlperf.series import ScalingSeries, describe_submitters_and_software
from analysis.mlperf.study import MlperfStudy
from analysis.report.wording import NO_VALUE, format_percentage
from analysis.statistics.worker_count_rules import (
    MIN_EFFICIENCY,
    TIME_EXPONENT,
    WORKER_COUNT_RULES,
    ChosenWorkerCount,
    choose_worker_counts,
)

GRID_POINTS = 49  # sizes from smallest to largest: steps of about a fifth over a factor of 1000
COLUMNS = (
    TableColumn("workload", "workload"),
    TableColumn("rule", "rule"),
    TableColumn("built_told", "among systems built"),
    TableColumn("built_interval", "95 %"),
    TableColumn("between_told", "between them, by the law"),
    TableColumn("between_interval", "95 % by the law"),
)
RULE_TEXT = (
    f"A balance point depends on its rule, so three rules are shown: the largest N up to which E' stays at or above "
    f"{MIN_EFFICIENCY:g}; the knee, which is the point farthest above the line from the first to the last point on log "
    f"axes; the smallest T^{TIME_EXPONENT} N, where doubling N must reduce the time below 1/sqrt(2) of it. "
    "Base: the smallest "
    "system of the series. Among systems that were built, intervals come from resampled runs; with few sizes they "
    f"often contain a single one. Between them, N is computed from the law {BestBatchTrainingTimeLaw.formula}, "
    "fitted to all sizes of "
    "the series; its intervals are those of the fit and include the differences between systems. The knee depends on "
    "the largest size of the series; the other two rules do not, as long as their points lie inside the series. ≥: the "
    "balance point may lie above the largest size; ≤: it may lie below the smallest size."
)
GRID_TEXT = (
    "≈: the law is evaluated at {grid} sizes in equal ratios from the smallest to the largest, so its "
    "balance points and their intervals are sizes of that grid, whose neighbours are up to {step} apart."
)
AT_LEAST_SIGN, AT_MOST_SIGN, ABOUT_SIGN = "≥ ", "≤ ", "≈ "
_, KNEE_RULE, COST_RULE = WORKER_COUNT_RULES


def accelerator_choice_chapter(mlperf_study: MlperfStudy) -> Chapter | None:
    """Return the report chapter on the numbers of accelerators that rules choose per workload.

    Return None if there is no series.
    """
    series = find_scaling_series(mlperf_study)
    if not series:
        return None
    fits = fit_law_to_each_series(series, BestBatchTrainingTimeLaw())
    rows = pd.DataFrame([row for each in series for row in _accelerator_count_rows(each, fits[each.benchmark])])
    rows = rows.astype({"built": "Int64", "between": "Int64"})  # integers, although a rule may have no balance point
    finding = (
        "The balance point depends on its rule: for one workload the largest is "
        f"{_format_max_to_min_ratio(rows, 'built')} times the smallest among systems that were built, "
        f"{_format_max_to_min_ratio(rows, 'between')} times between them by the law."
    )
    steps = GRID_TEXT.format(grid=GRID_POINTS, step=format_percentage(max(map(_relative_size_grid_step, series))))
    table = ChapterTable("balance", "Balance points by rule", COLUMNS, rows)
    return Chapter("Balance points", finding, (RULE_TEXT, steps, describe_submitters_and_software(series)), (table,))


def _format_max_to_min_ratio(balance_point_table: pd.DataFrame, count_column: str) -> str:
    """Format the ratio of the largest to the smallest accelerator count that any rule chooses.

    The ratio is a range over workloads.
    """
    balance_points = balance_point_table.dropna(subset=[count_column]).groupby("workload", sort=False)[count_column]
    ratios = (balance_points.max() / balance_points.min()).astype(float)
    low, high = _format_ratio(ratios.min()), _format_ratio(ratios.max())
    return low if low == high else f"{low} to {high}"


def _format_ratio(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"  # noqa: PLR2004 -- two digits or more


def _relative_size_grid_step(series: ScalingSeries) -> float:
    """Return the relative difference between neighbouring accelerator counts of a grid.

    The scaling law is evaluated on this grid.
    """
    return float((series.accelerator_counts[-1] / series.accelerator_counts[0]) ** (1 / (GRID_POINTS - 1)) - 1)


def _accelerator_count_rows(scaling_series: ScalingSeries, law_fit: LawFit) -> list[dict[str, object]]:
    built = _index_choices_by_rule(_choose_accelerator_counts(scaling_series))
    between = _index_choices_by_rule(_choose_counts_by_law(scaling_series, law_fit))
    return [
        {"benchmark": scaling_series.benchmark, "workload": scaling_series.name, "rule": rule}
        | _make_chosen_count_cells("built", built.get(rule))
        | _make_chosen_count_cells("between", between.get(rule))
        | {
            "built_told": _format_accelerator_count(built.get(rule), scaling_series),
            "between_told": _format_accelerator_count(between.get(rule), scaling_series, ABOUT_SIGN),
        }
        for rule in WORKER_COUNT_RULES
    ]


def _choose_accelerator_counts(series: ScalingSeries) -> tuple[ChosenWorkerCount, ...]:
    """Return the accelerator count that each rule chooses among the measured sizes.

    The choices have no intervals if any size of the series has a single run, because all sizes affect each choice.
    """
    counts, speedup = series.accelerator_counts, np.array([each.speedup for each in series.compute_efficiencies()])
    draws = series.bootstrap_speedups()
    return choose_worker_counts(counts, counts[0], speedup, draws if np.isfinite(draws).all() else None)


def _choose_counts_by_law(series: ScalingSeries, law_fit: LawFit) -> tuple[ChosenWorkerCount, ...]:
    first, last = series.accelerator_counts[0], series.accelerator_counts[-1]
    counts = np.unique(np.geomspace(first, last, GRID_POINTS).round()).astype(int)
    at = {"workers": counts.astype(float)}
    seconds = law_fit.law.predict_output(law_fit.parameters, at)
    draws = law_fit.law.predict_output(law_fit.parameter_draws, at)
    return choose_worker_counts(counts.tolist(), first, seconds[0] / seconds, draws[:, :1] / draws)


def _format_accelerator_count(
    count_choice: ChosenWorkerCount | None, series: ScalingSeries, approximate_sign: str = ""
) -> str:
    """Format a chosen number of accelerators.

    At an end of the measured sizes, the number has the sign ≥ or ≤, because the choice may lie beyond.

    The knee has no such sign, because a knee needs a neighbour on both sides.
    """
    if count_choice is None:
        return NO_VALUE
    first, last = series.accelerator_counts[0], series.accelerator_counts[-1]
    sign = "" if count_choice.workers in (first, last) else approximate_sign
    if count_choice.workers == last and count_choice.rule != KNEE_RULE:
        sign = AT_LEAST_SIGN
    if count_choice.workers == first and count_choice.rule == COST_RULE:
        sign = AT_MOST_SIGN
    return f"{sign}{count_choice.workers:,}"


def _index_choices_by_rule(chosen_worker_counts: tuple[ChosenWorkerCount, ...]) -> dict[str, ChosenWorkerCount]:
    return {pick.rule: pick for pick in chosen_worker_counts}


def _make_chosen_count_cells(column_name: str, count_choice: ChosenWorkerCount | None) -> dict[str, object]:
    interval = _format_interval(*count_choice.interval) if count_choice and count_choice.interval else NO_VALUE
    return {column_name: count_choice.workers if count_choice else None, f"{column_name}_interval": interval}


def _format_interval(low: int, high: int) -> str:
    return f"{low:,} to {high:,}" if low != high else f"{low:,}"
