"""Who took part, and against which system are they measured?"""

import pandas as pd

from analysis.mlperf.chapters.base import Chapter, Column, Table
from analysis.mlperf.study import Study, Workload
from analysis.report.wording import format_count, format_minutes

COLUMNS = (
    Column("workload", "workload"),
    Column("systems", "systems"),
    Column("fewest", "fewest accelerators"),
    Column("most", "most"),
    Column("reference", "reference system"),
    Column("reference_accelerators", "its accelerators"),
    Column("reference_minutes", "its minutes", format_minutes),
)
RULE = (
    "The reference of a workload is the slowest of its smallest systems. It decides every number below: where it is an "
    "old or a small device, all others look efficient beside it."
)


def systems(study: Study) -> Chapter:
    """How many systems trained each workload, and the reference of each."""
    data = pd.DataFrame([_row(workload) for workload in study.workloads])
    everywhere = in_all(study)
    finding = f"{format_count(len(study.results.rows), 'result')} of {format_count(len(data), 'workload')}"
    all_of_them = f"; {format_count(len(everywhere), 'system')} trained all of them" if len(data) > 1 else ""
    told = "In all workloads: " + "; ".join(f"{submitter} {system}" for submitter, system in everywhere) + "."
    return Chapter(
        "Systems and references",
        f"{finding}{all_of_them}.",
        (RULE, *([told] if everywhere and all_of_them else [])),
        (Table("references", "Systems and the reference of each workload", COLUMNS, data),),
    )


def in_all(study: Study) -> list[tuple[str, str]]:
    """Submitter and system of those that trained every workload."""
    found = [{(each.result.submitter, each.result.system) for each in workload.systems} for workload in study.workloads]
    return sorted(set.intersection(*found))


def _row(workload: Workload) -> dict[str, object]:
    counts = [each.result.accelerator_count for each in workload.systems]
    reference = workload.reference
    return {
        "benchmark": workload.benchmark,
        "workload": workload.name,
        "systems": len(counts),
        "fewest": min(counts),
        "most": max(counts),
        "reference": f"{reference.submitter} {reference.system}",
        "reference_accelerator": reference.accelerator,
        "reference_accelerators": reference.accelerator_count,
        "reference_minutes": reference.minutes,
    }
