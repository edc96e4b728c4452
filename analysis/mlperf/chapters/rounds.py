"""Report chapter that compares the same workload in several sources of results, for example two rounds."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from analysis.mlperf.chapters.base import Chapter, ChapterTable, TableColumn
from analysis.mlperf.chapters.sources import STATUS_TEXT
from analysis.mlperf.figures.frame import TRADEMARK_NOTICE
from analysis.mlperf.reading.results import MlperfResult
from analysis.mlperf.study import MlperfStudy, WorkloadComparison
from analysis.report.wording import format_count, format_minutes, format_number

FASTEST_COLUMNS = (
    TableColumn("workload", "workload"),
    TableColumn("source", "source"),
    TableColumn("systems", "systems"),
    TableColumn("system", "fastest system"),
    TableColumn("family", "kind"),
    TableColumn("accelerators", "N"),
    TableColumn("minutes", "minutes", format_minutes),
)
PAIR_COLUMNS = (
    TableColumn("workload", "workload"),
    TableColumn("family", "kind"),
    TableColumn("accelerators", "N"),
    TableColumn("earlier", "source"),
    TableColumn("earlier_minutes", "minutes", format_minutes),
    TableColumn("later", "later source"),
    TableColumn("later_minutes", "its minutes", format_minutes),
    TableColumn("speedup", "times as fast"),
    TableColumn("scope", "systems compared"),
)
RULE_TEXT = (
    "Sources are in the order of the command line. Results are compared if workload, kind and number of accelerators "
    "are equal; of each size, the fastest result of each source counts. Mixed: submitter or software differ. Rules and "
    "software change between rounds, so a difference is not due to the accelerators."
)


def rounds_chapter(studies: Sequence[MlperfStudy], labels: Sequence[str]) -> Chapter:
    """Return the chapter that compares workloads between studies.

    Args:
        studies: one study for each source, at least two.
        labels: name of each study in tables.
    """
    pairs = pd.DataFrame(list(_compare_sizes(studies, labels)), columns=[*(each.name for each in PAIR_COLUMNS)])
    fastest = pd.DataFrame(
        [row for study, label in zip(studies, labels, strict=True) for row in _fastest(study, label)]
    )
    tables = (
        ChapterTable("rounds-fastest", "The fastest system of each workload", FASTEST_COLUMNS, fastest),
        ChapterTable("rounds-sizes", "Equal kinds and numbers of accelerators", PAIR_COLUMNS, pairs),
    )
    filled_tables = tuple(each for each in tables if len(each.data))
    texts = (RULE_TEXT, *map(_describe_source, studies, labels), STATUS_TEXT, TRADEMARK_NOTICE)
    return Chapter("Rounds compared", _finding(pairs), texts, filled_tables)


def _finding(pairs: pd.DataFrame) -> str:
    if not len(pairs):
        return "No workload has results on the same kind and number of accelerators in two sources."
    faster, workloads = int((pairs.speedup > 1).sum()), format_count(pairs.workload.nunique(), "workload")
    return (
        f"On equal kinds and numbers of accelerators, the later source is faster in {faster} of {len(pairs)} "
        f"comparisons of {workloads}; the median is {format_number(float(np.median(pairs.speedup)))} times as fast."
    )


def _describe_source(study: MlperfStudy, label: str) -> str:
    results = study.results
    rules = results.rule_set.description if results.rule_set else ""
    facts = (format_count(len(results.rows), "result"), results.omission_summary, rules)
    return f"{label}: {'; '.join(filter(None, facts))}."


def _fastest(study: MlperfStudy, label: str) -> Iterator[dict[str, object]]:
    for workload in study.workloads:
        top = min((each.result for each in workload.systems), key=lambda result: result.minutes)
        yield {
            "workload": workload.name,
            "source": label,
            "systems": len(workload.systems),
            "system": f"{top.submitter} {top.system}",
            "family": top.family,
            "accelerators": top.accelerator_count,
            "minutes": top.minutes,
        }


def _compare_sizes(studies: Sequence[MlperfStudy], labels: Sequence[str]) -> Iterator[dict[str, object]]:
    """Yield a row for each size of a workload that two consecutive sources with this size have."""
    names = dict.fromkeys(workload.name for study in studies for workload in study.workloads)
    for name in names:
        results_by_size: dict[tuple[str, int], list[tuple[str, MlperfResult]]] = {}
        for study, label in zip(studies, labels, strict=True):
            for size, result in _fastest_by_size(workload for workload in study.workloads if workload.name == name):
                results_by_size.setdefault(size, []).append((label, result))
        for (family, count), labelled in sorted(results_by_size.items()):
            for (earlier, old), (later, new) in pairwise(labelled):
                yield {
                    "workload": name,
                    "family": family,
                    "accelerators": count,
                    "earlier": earlier,
                    "earlier_minutes": old.minutes,
                    "later": later,
                    "later_minutes": new.minutes,
                    "speedup": old.minutes / new.minutes,
                    "scope": "one submitter and software" if old.stack == new.stack else "mixed",
                }


def _fastest_by_size(workloads: Iterator[WorkloadComparison]) -> Iterator[tuple[tuple[str, int], MlperfResult]]:
    """Yield the fastest result for each family and number of accelerators."""
    fastest: dict[tuple[str, int], MlperfResult] = {}
    for result in (each.result for workload in workloads for each in workload.systems):
        size = result.family, result.accelerator_count
        fastest[size] = min(result, fastest.get(size, result), key=lambda each: each.minutes)
    yield from fastest.items()
