"""Report chapter on the scaling efficiency of systems within one family.

A family has one kind of accelerator, one submitter and one software stack. Each system is compared with a system of the
same family where such systems exist. The efficiency E' relative to one reference per workload shows differences between
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
    TableColumn("accelerator_kind", "kind"),
    TableColumn("submitter_and_software", "submitter and software"),
    TableColumn("reference_accelerators", "N of reference"),
    TableColumn("reference_minutes", "minutes of reference", format_minutes),
    TableColumn("systems", "larger systems"),
    TableColumn("largest", "largest N"),
    TableColumn("efficiency", "E' in family"),
    TableColumn("study_efficiency", "E' relative to the workload's reference"),
)
RULE_TEXT = (
    "A family is one kind of accelerator (model and form factor) of one submitter with one software stack (versions "
    "may differ). Its reference is the slowest of its systems with the fewest accelerators, as for a workload. A "
    "system without such a family is compared with the smallest system of any submitter on the same kind of "
    "accelerator; its row is marked as mixed, because E' then also compares submitters or software. Families with a "
    "single size are not compared. E' above 1 comes from a better system or better software, not from a faster "
    "accelerator."
)


def families_chapter(study: MlperfStudy) -> Chapter | None:
    """Return the chapter on scaling efficiency within each family.

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
    rows = pd.DataFrame([_make_family_row(workload, family, study_efficiencies) for workload, family in comparisons])
    table = ChapterTable("families", "The largest system of each family against its own reference", COLUMNS, rows)
    figure = draw_family_efficiency(study, comparisons, finding.removesuffix("."))
    return Chapter("Families of systems", finding, (RULE_TEXT,), (table,), (figure,))


def _make_family_row(
    workload: WorkloadComparison, family: FamilyComparison, study_efficiency_by_object_id: dict[int, float]
) -> dict[str, object]:
    base = family.reference
    top = max(family.systems, key=lambda each: (each.accelerator_ratio, each.speedup))
    return {
        "workload": workload.name,
        "accelerator_kind": base.accelerator_kind,
        "submitter_and_software": family.submitter_and_software,
        "reference": f"{base.submitter} {base.system}",
        "reference_accelerators": base.accelerator_count,
        "reference_minutes": base.minutes,
        "systems": sum(each.accelerator_ratio > 1 for each in family.systems),
        "largest": top.result.accelerator_count,
        "efficiency": top.efficiency,
        "study_efficiency": study_efficiency_by_object_id[id(top.result)],
    }
