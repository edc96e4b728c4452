"""Report chapter on the scaling efficiency of systems within one family of accelerators.

Each system is compared with a system that has accelerators of the same family. The efficiency E' relative to one
reference per workload shows differences between accelerators more than differences between sizes.
"""

import pandas as pd

from analysis.mlperf.chapters.base import Chapter, ChapterTable, TableColumn
from analysis.mlperf.figures.families import draw_family_efficiency
from analysis.mlperf.reading.accelerators import accelerator_family
from analysis.mlperf.references import ComparedResult, pair_with_reference, pick_smallest_reference
from analysis.mlperf.study import MlperfStudy, WorkloadComparison
from analysis.report.wording import format_minutes

COLUMNS = (
    TableColumn("workload", "workload"),
    TableColumn("family", "kind"),
    TableColumn("reference_accelerators", "N of its reference"),
    TableColumn("reference_minutes", "minutes", format_minutes),
    TableColumn("systems", "larger systems"),
    TableColumn("largest", "largest N"),
    TableColumn("efficiency", "its E'"),
    TableColumn("study_efficiency", "by its workload's reference"),
)
RULE_TEXT = (
    "A family is one model of accelerator on one kind of board. Its reference is the slowest of its systems with the "
    "fewest accelerators, as for a workload. Families with a single size are left out. E' above 1 comes from a better "
    "system or better software, not from a faster accelerator."
)


def accelerator_families_chapter(study: MlperfStudy) -> Chapter | None:
    """Return the chapter on scaling efficiency per accelerator family.

    Return None if no family has systems of two sizes.
    """
    comparisons = [(workload, members) for workload in study.workloads for members in compare_within_families(workload)]
    if not comparisons:
        return None
    larger = [each for _, members in comparisons for each in members if each.accelerator_ratio > 1]
    above = sum(each.efficiency > 1 for each in larger)
    study_result_by_id = {id(each.result): each for workload in study.workloads for each in workload.systems}
    above_in_study = sum(study_result_by_id[id(each.result)].efficiency > 1 for each in larger)
    finding = (
        f"Measured against their own family, {above} of {len(larger)} larger systems have E' above 1; against the "
        f"references of their workloads, {above_in_study} of the same {len(larger)} have."
    )
    rows = pd.DataFrame(
        [_make_accelerator_family_row(workload, members, study_result_by_id) for workload, members in comparisons]
    )
    table = ChapterTable("families", "The largest system of each family against its own reference", COLUMNS, rows)
    figure = draw_family_efficiency(study, comparisons, finding.removesuffix("."))
    return Chapter("Families of accelerators", finding, (RULE_TEXT,), (table,), (figure,))


def compare_within_families(workload: WorkloadComparison) -> list[tuple[ComparedResult, ...]]:
    """Compare systems with the reference system of their accelerator family.

    Families of a single size are left out.
    """
    rows = [each.result for each in workload.systems]
    kinds = dict.fromkeys(accelerator_family(row.accelerator) for row in rows)
    members = [[row for row in rows if accelerator_family(row.accelerator) == kind] for kind in kinds]
    scalable = [group for group in members if len({row.accelerator_count for row in group}) > 1]
    return [pair_with_reference(group, pick_smallest_reference(group)) for group in scalable]


def _make_accelerator_family_row(
    workload: WorkloadComparison,
    family_results: tuple[ComparedResult, ...],
    study_result_by_object_id: dict[int, ComparedResult],
) -> dict[str, object]:
    base = family_results[0].reference
    top = max(family_results, key=lambda each: (each.accelerator_ratio, each.speedup))
    return {
        "workload": workload.name,
        "family": accelerator_family(base.accelerator),
        "reference": f"{base.submitter} {base.system}",
        "reference_accelerators": base.accelerator_count,
        "reference_minutes": base.minutes,
        "systems": sum(each.accelerator_ratio > 1 for each in family_results),
        "largest": top.result.accelerator_count,
        "efficiency": top.efficiency,
        "study_efficiency": study_result_by_object_id[id(top.result)].efficiency,
    }
