"""Chapters of the report on public MLPerf Training results.

Each chapter is built by one function.

`CHAPTERS` lists these functions in the order of the report.
"""

from analysis.mlperf.chapters.balance import accelerator_choice_chapter
from analysis.mlperf.chapters.base import Chapter, ChapterTable, ChapterWriter, TableColumn
from analysis.mlperf.chapters.claims import study_claims_chapter
from analysis.mlperf.chapters.clusters import system_clusters_chapter
from analysis.mlperf.chapters.extrapolation import extrapolation_chapter
from analysis.mlperf.chapters.factors import scaling_efficiency_chapter
from analysis.mlperf.chapters.families import families_chapter
from analysis.mlperf.chapters.laws import scaling_laws_chapter
from analysis.mlperf.chapters.running_costs import running_costs_chapter
from analysis.mlperf.chapters.scaling import speedup_chapter
from analysis.mlperf.chapters.sources import make_data_sources_chapter
from analysis.mlperf.chapters.systems import systems_chapter
from analysis.mlperf.chapters.unanswered import make_unanswered_chapter

CHAPTERS: tuple[ChapterWriter, ...] = (
    systems_chapter,
    speedup_chapter,
    running_costs_chapter,
    system_clusters_chapter,
    families_chapter,
    scaling_efficiency_chapter,
    accelerator_choice_chapter,
    study_claims_chapter,
    scaling_laws_chapter,
    extrapolation_chapter,
    make_data_sources_chapter,
)

SAMPLES_NEED = "samples and batches of two sizes of one kind of accelerator; a round's logs have them, a table does not"
SHIPPED_SERIES_NEED = "series with enough sizes, for example the shipped ones, which are used without --data"
CHAPTER_NEEDS: dict[
    ChapterWriter, tuple[str, str]
] = {  # chapter that may be absent -> its title and the data that it needs
    running_costs_chapter: ("Accelerator-hours, energy and cost", "a system with accelerators"),
    system_clusters_chapter: ("Clusters", "four different systems of one workload"),
    families_chapter: ("Families of systems", "two sizes of one kind of accelerator"),
    scaling_efficiency_chapter: ("Hardware and learning", SAMPLES_NEED),
    accelerator_choice_chapter: ("Balance points", SAMPLES_NEED),
    study_claims_chapter: ("Claims of the study", SAMPLES_NEED),
    scaling_laws_chapter: ("Scaling laws", SHIPPED_SERIES_NEED),
    extrapolation_chapter: ("Extrapolation", SHIPPED_SERIES_NEED),
}

__all__ = [
    "CHAPTERS",
    "CHAPTER_NEEDS",
    "Chapter",
    "ChapterTable",
    "ChapterWriter",
    "TableColumn",
    "make_unanswered_chapter",
]
