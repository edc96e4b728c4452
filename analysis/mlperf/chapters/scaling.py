"""How much faster are larger systems, and how much of their size do they turn into speed?"""

import pandas as pd

from analysis.mlperf.chapters.base import Chapter, Column, Table
from analysis.mlperf.figures.cluster_map import span
from analysis.mlperf.figures.comparison import comparison, table
from analysis.mlperf.study import Study, Workload
from analysis.report.wording import format_minutes, format_number

FASTEST = (
    Column("workload", "workload"),
    Column("system", "fastest system"),
    Column("accelerators", "accelerators"),
    Column("minutes", "minutes", format_minutes),
    Column("speedup", "speedup S"),
    Column("efficiency", "E'"),
    Column("above_one", "systems with E' > 1"),
)
ALL = (
    Column("workload", "workload"),
    Column("submitter", "submitter"),
    Column("system", "system"),
    Column("family", "accelerator"),
    Column("accelerator_count", "accelerators"),
    Column("minutes", "minutes", format_minutes),
    Column("speedup", "speedup S"),
    Column("efficiency", "E'"),
)
RULE = (
    "S = T(reference) / T and E' = S / (N / N of the reference), where T is the time to the workload's target and N "
    "the number of accelerators. Systems differ in kind as well as in size: E' compares a device with the reference's "
    "device as much as it tells what sharing the work costs."
)


def scaling(study: Study) -> Chapter:
    """Speedup and E' of every system."""
    fastest = pd.DataFrame([_fastest(workload) for workload in study.workloads])
    everyone = pd.concat([table(workload).assign(workload=workload.name) for workload in study.workloads])
    speedup, efficiency = _range(fastest.speedup), _range(fastest.efficiency)
    who = "systems are" if len(fastest) > 1 else "system is"
    whose = "their references" if len(fastest) > 1 else "its reference"
    finding = f"The fastest {who} {speedup} times as fast as {whose}, at an efficiency E' of {efficiency}."
    return Chapter(
        "Speedup and efficiency",
        finding,
        (RULE,),
        (
            Table("fastest", "The fastest system of each workload", FASTEST, fastest),
            Table("systems", "All systems", ALL, everyone, brief=False),
        ),
        tuple(comparison(study, workload) for workload in study.workloads),
    )


def _range(values: pd.Series) -> str:
    return span(format_number(values.min()), format_number(values.max()))


def _fastest(workload: Workload) -> dict[str, object]:
    top = max(workload.systems, key=lambda each: each.speedup)
    others = [each for each in workload.systems if each.result != workload.reference]
    return {
        "benchmark": workload.benchmark,
        "workload": workload.name,
        "system": f"{top.result.submitter} {top.result.system}",
        "accelerators": top.result.accelerator_count,
        "minutes": top.result.minutes,
        "speedup": top.speedup,
        "efficiency": top.efficiency,
        "above_one": f"{sum(each.efficiency > 1 for each in others)} of {len(others)}",
    }
