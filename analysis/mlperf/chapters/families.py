"""How efficient are larger systems against a smaller one of their own kind?

Against the slowest of the smallest systems of all, E' tells kinds of accelerators apart more than sizes.
"""

import pandas as pd

from analysis.mlperf.chapters.base import Chapter, Column, Table
from analysis.mlperf.figures.families import families as drawn
from analysis.mlperf.reading.accelerators import family
from analysis.mlperf.references import Scaled, scaled, slowest_of_the_smallest
from analysis.mlperf.study import Study, Workload
from analysis.report.wording import format_minutes

COLUMNS = (
    Column("workload", "workload"),
    Column("family", "kind"),
    Column("reference_accelerators", "N of its reference"),
    Column("reference_minutes", "minutes", format_minutes),
    Column("systems", "larger systems"),
    Column("largest", "largest N"),
    Column("efficiency", "its E'"),
    Column("study_efficiency", "by its workload's reference"),
)
RULE = (
    "A family is one model of accelerator on one kind of board; its reference is chosen as the workload's is, the "
    "slowest of the smallest, but among systems of the family. Families of one size alone have nothing to scale and "
    "are left out. What is left above 1 are better systems or software, not accelerators."
)


def families(study: Study) -> Chapter | None:
    """E' by family; None where no family has two sizes."""
    found = [(workload, own) for workload in study.workloads for own in of_family(workload)]
    if not found:
        return None
    larger = [each for _, own in found for each in own if each.size > 1]
    above = sum(each.efficiency > 1 for each in larger)
    theirs = {id(each.result): each for workload in study.workloads for each in workload.systems}
    before = sum(theirs[id(each.result)].efficiency > 1 for each in larger)
    finding = (
        f"Measured against their own kind, {above} of {len(larger)} larger systems have E' above 1; against the "
        f"references of their workloads {before} of the same have."
    )
    rows = pd.DataFrame([_row(workload, own, theirs) for workload, own in found])
    table = Table("families", "The largest system of each family against its own reference", COLUMNS, rows)
    return Chapter(
        "Families of accelerators", finding, (RULE,), (table,), (drawn(study, found, finding.removesuffix(".")),)
    )


def of_family(workload: Workload) -> list[tuple[Scaled, ...]]:
    """The systems of each family of two sizes or more, against the family's reference."""
    rows = [each.result for each in workload.systems]
    kinds = dict.fromkeys(family(row.accelerator) for row in rows)
    members = [[row for row in rows if family(row.accelerator) == kind] for kind in kinds]
    several = [own for own in members if len({row.accelerator_count for row in own}) > 1]
    return [scaled(own, slowest_of_the_smallest(own)) for own in several]


def _row(workload: Workload, own: tuple[Scaled, ...], theirs: dict[int, Scaled]) -> dict[str, object]:
    base, top = own[0].reference, max(own, key=lambda each: (each.size, each.speedup))
    return {
        "workload": workload.name,
        "family": family(base.accelerator),
        "reference": f"{base.submitter} {base.system}",
        "reference_accelerators": base.accelerator_count,
        "reference_minutes": base.minutes,
        "systems": sum(each.size > 1 for each in own),
        "largest": top.result.accelerator_count,
        "efficiency": top.efficiency,
        "study_efficiency": theirs[id(top.result)].efficiency,
    }
