"""Report chapter on the two factors of scaling efficiency: hardware and statistical efficiency.

Hardware efficiency compares the rate per device; statistical efficiency compares the samples to the target.
"""

import pandas as pd

from analysis.mlperf.chapters.base import Chapter, ChapterTable, TableColumn
from analysis.mlperf.figures.factors import draw_scaling_efficiency
from analysis.mlperf.reading.run_samples import find_scaling_series
from analysis.mlperf.series import ScalingSeries
from analysis.mlperf.study import MlperfStudy
from analysis.report.wording import format_number, join_names
from analysis.statistics.intervals import percentile_interval

COLUMNS = (
    TableColumn("workload", "workload"),
    TableColumn("kind", "kind"),
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
    "batches and stragglers; it is a remainder, not a measurement. Minutes are those of the fastest system of a size, "
    "samples the mean over all systems of the size: a difference between these counts as hardware. Batches are medians "
    "over the systems of a size. Intervals come from simulated runs with the run spread of each size; systems and "
    "software of neighbouring sizes differ by more."
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
    finding = (
        f"In {len(last) - len(learning)} of {len(last)} workloads the largest system loses more E' to hardware than to "
        f"additional samples{f'; in {join_names(learning)} more to additional samples' if len(learning) else ''}."
    )
    brief = ChapterTable("factors", "The largest system of each workload", COLUMNS, last)
    whole = ChapterTable("factors-all", "Every size", COLUMNS, rows, is_short=False)
    figure = draw_scaling_efficiency(series, finding.removesuffix("."))
    return Chapter("Hardware and learning", finding, (RULE_TEXT,), (brief, whole), (figure,))


def _scaling_efficiency_rows(series: ScalingSeries) -> list[dict[str, object]]:
    draws = series.bootstrap_speedups()
    return [
        {
            "benchmark": series.benchmark,
            "workload": series.name,
            "kind": series.accelerator,
            "base": series.accelerator_counts[0],
            "accelerators": size.accelerators,
            "minutes": size.minutes,
            "speedup": size_factors.speedup,
            "speedup_ci": "{} to {}".format(*map(format_number, percentile_interval(draws[:, index]))),
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
