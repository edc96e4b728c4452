"""Chapter on the systems with results, and on the reference system of each workload."""

from collections.abc import Iterator

import pandas as pd

from analysis.mlperf.chapters.base import Chapter, ChapterTable, TableColumn
from analysis.mlperf.reading.results import MlperfResults
from analysis.mlperf.reading.run_samples import find_scaling_series
from analysis.mlperf.study import MlperfStudy, WorkloadComparison
from analysis.report.wording import format_count, format_minutes, join_names

COLUMNS = (
    TableColumn("workload", "workload"),
    TableColumn("systems", "systems"),
    TableColumn("fewest", "fewest accelerators"),
    TableColumn("most", "most"),
    TableColumn("reference", "reference system"),
    TableColumn("reference_accelerators", "accelerators of reference"),
    TableColumn("reference_minutes", "minutes of reference", format_minutes),
)
RULE_TEXT = (
    "The reference of a workload is the slowest of its systems with the fewest accelerators. All speedups and "
    "efficiencies below depend on it: against an old or a small device every system looks efficient."
)


def systems_chapter(mlperf_study: MlperfStudy) -> Chapter:
    """Return the chapter with the number of systems and the reference system of each workload."""
    data = pd.DataFrame([_reference_system_row(workload) for workload in mlperf_study.workloads])
    common_systems = systems_in_all_workloads(mlperf_study)
    results = mlperf_study.results
    count = f"{format_count(len(results.rows), 'result')} of {format_count(len(data), 'workload')}"
    all_of_them = f"; {format_count(len(common_systems), 'system')} trained all of them" if len(data) > 1 else ""
    common_text = f"In all workloads: {'; '.join(map(' '.join, common_systems))}."
    texts = (RULE_TEXT, *([common_text] if common_systems and all_of_them else []), *_describe_other_units(results))
    table = ChapterTable("references", "Systems and the reference of each workload", COLUMNS, data)
    parts = (
        f"{count}{all_of_them}",
        _further_series_text(mlperf_study),
        results.unscored_summary,
        _rules_text(results),
    )
    finding = ". ".join(filter(None, parts))
    return Chapter("Systems and references", f"{finding}.", texts, (table,))


def _further_series_text(mlperf_study: MlperfStudy) -> str:
    """Return the workloads with a shipped series that have no rows in the results; empty if there are none."""
    known = {workload.benchmark for workload in mlperf_study.workloads}
    names = [series.name for series in find_scaling_series(mlperf_study) if series.benchmark not in known]
    if not names:
        return ""
    series = f"Series of {format_count(len(names), 'further workload')} ({join_names(names)})"
    return f"{series} are in the chapters on hardware and learning, balance points, scaling laws and extrapolation"


def _rules_text(results: MlperfResults) -> str:
    """Return the rules that the logs were checked with; empty for a table."""
    description = results.rule_set.description if results.rule_set else ""
    return description[:1].upper() + description[1:]


def _describe_other_units(results: MlperfResults) -> Iterator[str]:
    """Yield a sentence on the systems without accelerators for each unit in which they are counted."""
    for unit in ("processors", "hosts"):
        if count := sum(row.unit == unit for row in results.rows):
            yield (
                f"{format_count(count, 'result')} of systems without accelerators: N is the number of {unit}, and E' "
                f"compares {unit} with the accelerators of the reference."
            )


def systems_in_all_workloads(study: MlperfStudy) -> list[tuple[str, str]]:
    """Return submitter and name of each system that has a result for every workload."""
    names = [{(each.result.submitter, each.result.system) for each in workload.systems} for workload in study.workloads]
    return sorted(set.intersection(*names))


def _reference_system_row(workload: WorkloadComparison) -> dict[str, object]:
    reference = workload.reference
    counts = [each.result.accelerator_count for each in workload.systems if each.result.unit == reference.unit]
    return {
        "benchmark": workload.benchmark,
        "workload": workload.name,
        "systems": len(workload.systems),
        "fewest": min(counts),
        "most": max(counts),
        "reference": f"{reference.submitter} {reference.system}",
        "reference_accelerator": reference.accelerator,
        "reference_accelerators": reference.accelerator_count,
        "reference_minutes": reference.minutes,
    }
