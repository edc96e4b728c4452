"""The chapters of the report on public results, one per file, each a function of a study. `CHAPTERS` is their order."""

from analysis.mlperf.chapters.absent import unanswered_chapter
from analysis.mlperf.chapters.balance import balance_chapter
from analysis.mlperf.chapters.base import Chapter, ChapterTable, ChapterWriter, TableColumn
from analysis.mlperf.chapters.clusters import clusters_chapter
from analysis.mlperf.chapters.extrapolation import extrapolation_chapter
from analysis.mlperf.chapters.factors import factors_chapter
from analysis.mlperf.chapters.families import families_chapter
from analysis.mlperf.chapters.laws import laws_chapter
from analysis.mlperf.chapters.scaling import scaling_chapter
from analysis.mlperf.chapters.sources import sources_chapter
from analysis.mlperf.chapters.systems import systems_chapter

CHAPTERS: tuple[ChapterWriter, ...] = (
    systems_chapter,
    scaling_chapter,
    clusters_chapter,
    families_chapter,
    factors_chapter,
    balance_chapter,
    laws_chapter,
    extrapolation_chapter,
    sources_chapter,
)

SAMPLES_NEED = (
    "samples and batches of two sizes of one kind of accelerator; the logs of a round have them, a table does not"
)
SHIPPED_SERIES_NEED = "series with enough sizes, for example the shipped ones, which are used without --data"
CHAPTER_NEEDS: dict[
    ChapterWriter, tuple[str, str]
] = {  # of chapters that may have nothing to say: title, and what it would take
    clusters_chapter: ("Clusters", "four different systems of one workload"),
    families_chapter: ("Families of accelerators", "two sizes of one kind of accelerator"),
    factors_chapter: ("Hardware and learning", SAMPLES_NEED),
    balance_chapter: ("Balance points", SAMPLES_NEED),
    laws_chapter: ("Scaling laws", SHIPPED_SERIES_NEED),
    extrapolation_chapter: ("Extrapolation", SHIPPED_SERIES_NEED),
}

__all__ = ["CHAPTERS", "CHAPTER_NEEDS", "Chapter", "ChapterTable", "ChapterWriter", "TableColumn", "unanswered_chapter"]
