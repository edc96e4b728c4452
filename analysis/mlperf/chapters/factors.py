"""Report chapter on the two factors of scaling efficiency: hardware and statistical efficiency.

Hardware efficiency compares the rate per device; statistical efficiency compares the samples to the target.
"""

import pandas as pd

from analysis.mlperf.chapters.base import Chapter, ChapterTable, TableColumn
from analysis.mlperf.figures.factors import draw_scaling_efficiency
from analysis.mlperf.reading.results import MlperfResults
from analysis.mlperf.reading.run_samples import find_scaling_series
from analysis.mlperf.series import ScalingSeries
from analysis.mlperf.study import MlperfStudy
from analysis.report.wording import format_number, join_names
from analysis.statistics.intervals import Interval

COLUMNS = (
    TableColumn("workload", "workload"),
    TableColumn("accelerator_kind", "kind"),
    TableColumn("submitter_and_software", "submitter and software"),
    TableColumn("base", "from"),
    TableColumn("accelerators", "to N"),
    TableColumn("speedup", "speedup S"),
    TableColumn("speedup_ci", "95 %"),
    TableColumn("efficiency", "E'"),
    TableColumn("hardware", "hardware"),
    TableColumn("statistical", "statistical"),
    TableColumn("batch", "global batch"),
)
RULE_TEXT = (
    "E' = hardware x statistical. Statistical: samples to target of the smallest system / those of N; a larger batch "
    "needs more samples, on any hardware. Hardware: E' / statistical, which falls with communication, smaller local "
    "batches and stragglers; it is a quotient, not a measurement. Minutes are those of the fastest system of a size, "
    "samples the mean over all systems of the size: a difference between these counts as hardware. Batches are medians "
    "over the systems of a size. Mixed: the fastest systems of the sizes have several submitters or software stacks, "
    "so E' also compares these; the chapter on families has E' within one submitter and software. Intervals come from "
    "simulated runs with the run spread of each size; systems and software of neighbouring sizes differ by more."
)


def scaling_efficiency_chapter(mlperf_study: MlperfStudy) -> Chapter | None:
    """Return the report chapter on scaling efficiency and its two factors.

    Scaling efficiency is hardware efficiency x statistical efficiency. Return None if samples to the target are
    unknown.
    """
    series = find_scaling_series(mlperf_study)
    if not series:
        return None
    rows = pd.DataFrame([row for each in series for row in _scaling_efficiency_rows(each)])
    last = rows.groupby("workload", sort=False).tail(1)
    learning = last[last.statistical < last.hardware].workload
    more_samples = f"; in {join_names(learning)} more to additional samples" if len(learning) else ""
    finding = (
        f"In {len(last) - len(learning)} of {len(last)} workloads with a series the largest system loses more E' to "
        f"hardware than to additional samples{more_samples}."
    )
    brief = ChapterTable("factors", "The largest system of each series", COLUMNS, last)
    whole = ChapterTable("factors-all", "Every size", COLUMNS, rows, is_short=False)
    figure = draw_scaling_efficiency(series, finding.removesuffix("."))
    texts = (RULE_TEXT, *filter(None, (_describe_larger_system(each, mlperf_study.results) for each in series)))
    return Chapter("Hardware and learning", finding, texts, (brief, whole), (figure,))


def _describe_larger_system(series: ScalingSeries, results: MlperfResults) -> str:
    """Return a sentence on the largest system of a workload if the series does not contain it."""
    rows = [row for row in results.results_of(series.benchmark) if row.unit == "accelerators"]
    if not rows or rows[-1].accelerator_count <= series.accelerator_counts[-1]:
        return ""
    largest = rows[-1]
    return (
        f"{series.name}: the largest system ({largest.submitter} {largest.system}, {largest.accelerator_count:,} x "
        f"{largest.accelerator_kind}) is not in the series, which has the sizes of {series.accelerator} with known "
        "samples."
    )


def _scaling_efficiency_rows(series: ScalingSeries) -> list[dict[str, object]]:
    intervals = series.speedup_intervals()
    return [
        {
            "benchmark": series.benchmark,
            "workload": series.name,
            "accelerator_kind": series.accelerator,
            "submitter_and_software": series.submitter_and_software,
            "base": series.accelerator_counts[0],
            "accelerators": size.accelerators,
            "minutes": size.minutes,
            "speedup": size_factors.speedup,
            "speedup_ci": _format_interval(intervals[index]),
            "efficiency": size_factors.efficiency,
            "hardware": size_factors.hardware,
            "statistical": size_factors.statistical,
            "samples": size.samples,
            "unit": size.unit,
            "batch": round(size.batch),
        }
        for index, (size, size_factors) in enumerate(zip(series.points, series.compute_efficiencies(), strict=True))
        if index
    ]


def _format_interval(interval: Interval | None) -> str:
    """Format the interval of a speedup. It is missing where the size or its base has a single run."""
    return "{} to {}".format(*map(format_number, interval)) if interval else "single run"
