"""Report chapter on the scaling efficiency of systems within one family of accelerators.

Each system is compared with a system that has accelerators of the same family, of the same submitter and with the same
software where such systems exist. The efficiency E' relative to one reference per workload shows differences between
accelerators more than differences between sizes.
"""

import pandas as pd

from analysis.mlperf.chapters.base import Chapter, ChapterTable, TableColumn
from analysis.mlperf.figures.families import draw_family_efficiency
from analysis.mlperf.references import FamilyComparison
from analysis.mlperf.study import MlperfStudy, WorkloadComparison
from analysis.report.wording import format_minutes

COLUMNS = (
    TableColumn("workload", "workload"),
    TableColumn("family", "kind"),
    TableColumn("scope", "submitter and software"),
    TableColumn("reference_accelerators", "N of its reference"),
    TableColumn("reference_minutes", "minutes", format_minutes),
    TableColumn("systems", "larger systems"),
    TableColumn("largest", "largest N"),
    TableColumn("efficiency", "its E'"),
    TableColumn("study_efficiency", "by its workload's reference"),
)
RULE_TEXT = (
    "A family is one model of accelerator on one kind of board, from one submitter with one software stack (versions "
    "may differ). Its reference is the slowest of its systems with the fewest accelerators, as for a workload. A "
    "system without such a family is compared with the smallest system of any submitter on the same kind of "
    "accelerator; its row is marked as mixed, because E' then also compares submitters or software. Families with a "
    "single size are left out. E' above 1 comes from a better system or better software, not from a faster accelerator."
)


def accelerator_families_chapter(study: MlperfStudy) -> Chapter | None:
    """Return the chapter on scaling efficiency per accelerator family.

    Return None if no family has systems of two sizes.
    """
    comparisons = [(workload, family) for workload in study.workloads for family in workload.families]
    if not comparisons:
        return None
    larger = [each for _, family in comparisons for each in family.systems if each.accelerator_ratio > 1]
    above = sum(each.efficiency > 1 for each in larger)
    study_efficiencies = {id(each.result): each.efficiency for workload in study.workloads for each in workload.systems}
    above_in_study = sum(study_efficiencies[id(each.result)] > 1 for each in larger)
    finding = (
        f"Measured against their own family, {above} of {len(larger)} larger systems have E' above 1; against the "
        f"references of their workloads, {above_in_study} of the same {len(larger)} have."
    )
    rows = pd.DataFrame(
        [_make_accelerator_family_row(workload, family, study_efficiencies) for workload, family in comparisons]
    )
    table = ChapterTable("families", "The largest system of each family against its own reference", COLUMNS, rows)
    figure = draw_family_efficiency(study, comparisons, finding.removesuffix("."))
    return Chapter("Families of accelerators", finding, (RULE_TEXT,), (table,), (figure,))


def _make_accelerator_family_row(
    workload: WorkloadComparison, family: FamilyComparison, study_efficiency_by_object_id: dict[int, float]
) -> dict[str, object]:
    base = family.reference
    top = max(family.systems, key=lambda each: (each.accelerator_ratio, each.speedup))
    return {
        "workload": workload.name,
        "family": base.family,
        "scope": family.scope,
        "reference": f"{base.submitter} {base.system}",
        "reference_accelerators": base.accelerator_count,
        "reference_minutes": base.minutes,
        "systems": sum(each.accelerator_ratio > 1 for each in family.systems),
        "largest": top.result.accelerator_count,
        "efficiency": top.efficiency,
        "study_efficiency": study_efficiency_by_object_id[id(top.result)],
    }
