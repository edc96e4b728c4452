"""Where does efficiency go: to devices that wait, or to samples that teach less?"""

import pandas as pd

from analysis.mlperf.chapters.base import Chapter, Column, Table
from analysis.mlperf.figures.factors import factors as drawn
from analysis.mlperf.reading.learning import series_of
from analysis.mlperf.series import Series
from analysis.mlperf.study import Study
from analysis.report.wording import format_number
from analysis.statistics.bootstrap import percentile_interval

COLUMNS = (
    Column("workload", "workload"),
    Column("kind", "kind"),
    Column("base", "from"),
    Column("accelerators", "to N"),
    Column("speedup", "speedup S"),
    Column("speedup_ci", "95 %"),
    Column("efficiency", "E'"),
    Column("hardware", "hardware"),
    Column("statistical", "statistical"),
    Column("batch", "global batch"),
)
RULE = (
    "E' = hardware x statistical. Statistical: samples to target of the smallest system / those of N; a larger batch "
    "needs more samples, on whatever hardware. Hardware: what is left of E', which communication, smaller shares of "
    "the batch and stragglers cost; a remainder, not a measurement. Minutes are of the fastest system of a size, "
    "samples the mean over all of that size: where those differ, hardware bears it. Batches are medians over the "
    "systems of a size. Intervals resample runs as spread as those of each size are; systems and software of "
    "neighbours differ by more."
)


def factors(study: Study) -> Chapter | None:
    """The split for each series; None where no samples to target are known."""
    series = series_of(study)
    if not series:
        return None
    rows = pd.DataFrame([row for each in series for row in _rows(each)])
    last = rows.groupby("workload", sort=False).tail(1)
    learning = last[last.statistical < last.hardware].workload
    most = f"hardware costs more of E' than learning in {len(last) - len(learning)} of {len(last)} workloads"
    rest = f"; in {' and '.join(learning)} larger batches cost more" if len(learning) else ""
    finding = f"On the largest systems {most}{rest}."
    brief = Table("factors", "The largest system of each workload", COLUMNS, last)
    whole = Table("factors-all", "Every size", COLUMNS, rows, brief=False)
    return Chapter(
        "Hardware and learning", finding, (RULE,), (brief, whole), (drawn(series, finding.removesuffix(".")),)
    )


def _rows(series: Series) -> list[dict[str, object]]:
    draws = series.speedup_draws()
    return [
        {
            "benchmark": series.benchmark,
            "workload": series.name,
            "kind": series.accelerator,
            "base": series.counts[0],
            "accelerators": size.accelerators,
            "minutes": size.minutes,
            "speedup": found.speedup,
            "speedup_ci": "{} to {}".format(*map(format_number, percentile_interval(draws[:, place]))),
            "efficiency": found.efficiency,
            "hardware": found.hardware,
            "statistical": found.statistical,
            "samples": size.samples,
            "unit": size.unit,
            "batch": round(size.batch),
        }
        for place, (size, found) in enumerate(zip(series.sizes, series.factors(), strict=True))
        if place
    ]
