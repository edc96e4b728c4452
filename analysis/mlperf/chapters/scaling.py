"""Chapter on the speedup and efficiency of every system relative to the reference system of the workload."""

import pandas as pd

from analysis.mlperf.chapters.base import Chapter, ChapterTable, TableColumn
from analysis.mlperf.figures.cluster_map import format_text_range
from analysis.mlperf.figures.comparison import draw_speedup_and_efficiency, make_speedup_table
from analysis.mlperf.study import MlperfStudy, WorkloadComparison
from analysis.report.wording import format_minutes, format_number

FASTEST_COLUMNS = (
    TableColumn("workload", "workload"),
    TableColumn("system", "fastest system"),
    TableColumn("accelerators", "accelerators"),
    TableColumn("minutes", "minutes", format_minutes),
    TableColumn("speedup", "speedup S"),
    TableColumn("efficiency", "E'"),
    TableColumn("family_efficiency", "E' in family"),
    TableColumn("family_submitter_and_software", "submitter and software"),
    TableColumn("above_one", "systems with E' > 1"),
)
SYSTEM_COLUMNS = (
    TableColumn("workload", "workload"),
    TableColumn("submitter", "submitter"),
    TableColumn("system", "system"),
    TableColumn("accelerator_kind", "kind"),
    TableColumn("accelerator_count", "accelerators"),
    TableColumn("minutes", "minutes", format_minutes),
    TableColumn("speedup", "speedup S"),
    TableColumn("efficiency", "E'"),
    TableColumn("family_efficiency", "E' in family"),
    TableColumn("family_submitter_and_software", "submitter and software"),
)
RULE_TEXT = (
    "S = T(reference) / T and E' = S / (N / N of the reference), where T is the time to the workload's target and N "
    "the number of accelerators. Systems differ in accelerators as well as in size: E' reflects both how fast a device "
    "is against the reference's device and what distributing the work costs. E' in family: against the smallest system "
    "of the same submitter, software and kind of accelerator; mixed: against that of another submitter or software."
)


def speedup_chapter(mlperf_study: MlperfStudy) -> Chapter:
    """Return the report chapter on the speedup and efficiency of every system.

    Speedup and efficiency are relative to the reference system of the workload.
    """
    fastest = pd.DataFrame([_fastest_system_row(workload) for workload in mlperf_study.workloads])
    systems = [make_speedup_table(workload).assign(workload=workload.name) for workload in mlperf_study.workloads]
    speedup, efficiency = _format_value_range(fastest.speedup), _format_value_range(fastest.efficiency)
    subject = "systems are" if len(fastest) > 1 else "system is"
    reference = "their references" if len(fastest) > 1 else "its reference"
    finding = f"The fastest {subject} {speedup} times as fast as {reference}, at an efficiency E' of {efficiency}."
    tables = (
        ChapterTable("fastest", "The fastest system of each workload", FASTEST_COLUMNS, fastest),
        ChapterTable("systems", "All systems", SYSTEM_COLUMNS, pd.concat(systems), is_short=False),
    )
    figures = tuple(draw_speedup_and_efficiency(mlperf_study, workload) for workload in mlperf_study.workloads)
    return Chapter("Speedup and efficiency", finding, (RULE_TEXT,), tables, figures)


def _format_value_range(values: pd.Series) -> str:
    return format_text_range(format_number(values.min()), format_number(values.max()))


def _fastest_system_row(workload: WorkloadComparison) -> dict[str, object]:
    top = max(workload.systems, key=lambda each: each.speedup)
    others = [each for each in workload.systems if each.result != workload.reference]
    family_efficiency, family_submitter_and_software = workload.family_efficiency(top.result)
    return {
        "benchmark": workload.benchmark,
        "workload": workload.name,
        "system": f"{top.result.submitter} {top.result.system}",
        "accelerators": top.result.accelerator_count,
        "minutes": top.result.minutes,
        "speedup": top.speedup,
        "efficiency": top.efficiency,
        "family_efficiency": family_efficiency,
        "family_submitter_and_software": family_submitter_and_software,
        "above_one": f"{sum(each.efficiency > 1 for each in others)} of {len(others)}",
    }
