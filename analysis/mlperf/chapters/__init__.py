"""The chapters of the report on public results, one per file, each a function of a study. `CHAPTERS` is their order."""

from analysis.mlperf.chapters.absent import absent
from analysis.mlperf.chapters.balance import balance
from analysis.mlperf.chapters.base import Chapter, Column, Table, Write
from analysis.mlperf.chapters.clusters import clusters
from analysis.mlperf.chapters.extrapolation import extrapolation
from analysis.mlperf.chapters.factors import factors
from analysis.mlperf.chapters.families import families
from analysis.mlperf.chapters.laws import laws
from analysis.mlperf.chapters.scaling import scaling
from analysis.mlperf.chapters.sources import sources
from analysis.mlperf.chapters.systems import systems

CHAPTERS: tuple[Write, ...] = (
    systems,
    scaling,
    clusters,
    families,
    factors,
    balance,
    laws,
    extrapolation,
    sources,
)

RUNS = "samples and batches, which the logs of a round tell for two sizes of one kind of accelerator, and no table does"
SERIES = "the series that ship; they belong to the results that are studied without --data"
NEEDS: dict[Write, tuple[str, str]] = {  # of chapters that may have nothing to say: title, and what it would take
    clusters: ("Clusters", "four different systems of one workload"),
    families: ("Families of accelerators", "two sizes of one kind of accelerator"),
    factors: ("Hardware and learning", RUNS),
    balance: ("Balance points", RUNS),
    laws: ("Laws of scaling", SERIES),
    extrapolation: ("Extrapolation", SERIES),
}

__all__ = ["CHAPTERS", "NEEDS", "Chapter", "Column", "Table", "Write", "absent"]
