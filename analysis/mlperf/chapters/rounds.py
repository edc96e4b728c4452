"""Report chapter that compares the same workload in several sources of results, for example two rounds."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pandas as pd

from analysis.mlperf.chapters.base import Chapter, ChapterTable, TableColumn
from analysis.mlperf.chapters.sources import STATUS_TEXT
from analysis.mlperf.figures.frame import TRADEMARK_NOTICE
from analysis.mlperf.reading.results import MlperfResult
from analysis.mlperf.references import describe_submitter_and_software
from analysis.mlperf.study import MlperfStudy
from analysis.report.wording import format_count, format_minutes, format_number

ComparisonKey: TypeAlias = tuple[str, str, int]  # workload, kind of accelerator, number of accelerators
FASTEST_COLUMNS = (
    TableColumn("workload", "workload"),
    TableColumn("source", "source"),
    TableColumn("systems", "systems"),
    TableColumn("system", "fastest system"),
    TableColumn("accelerator_kind", "kind"),
    TableColumn("accelerators", "N"),
    TableColumn("minutes", "minutes", format_minutes),
)
PAIR_COLUMNS = (
    TableColumn("workload", "workload"),
    TableColumn("accelerator_kind", "kind"),
    TableColumn("accelerators", "N"),
    TableColumn("earlier", "earlier source"),
    TableColumn("earlier_minutes", "earlier minutes", format_minutes),
    TableColumn("later", "later source"),
    TableColumn("later_minutes", "later minutes", format_minutes),
    TableColumn("speedup", "times as fast"),
    TableColumn("submitter_and_software", "submitter and software"),
)
RULE_TEXT = (
    "Sources are in the order of the command line. Results are compared if workload, kind and number of accelerators "
    "are equal, within one submitter and its software where both sources have results of these; otherwise, the fastest "
    "results of the size are compared and marked as mixed. Rules and versions of software change between rounds, so a "
    "difference is not due to the accelerators alone."
)


def rounds_chapter(studies: Sequence[MlperfStudy], labels: Sequence[str]) -> Chapter:
    """Return the chapter that compares workloads between studies.

    Args:
        studies: one study for each source, at least two.
        labels: name of each study in tables.
    """
    pairs = pd.DataFrame(list(_compare_sizes(studies, labels)), columns=[*(each.name for each in PAIR_COLUMNS)])
    fastest = pd.DataFrame(
        [row for study, label in zip(studies, labels, strict=True) for row in _fastest_rows(study, label)]
    )
    tables = (
        ChapterTable("rounds-fastest", "The fastest system of each workload", FASTEST_COLUMNS, fastest),
        ChapterTable("rounds-sizes", "Equal kinds and numbers of accelerators", PAIR_COLUMNS, pairs),
    )
    filled_tables = tuple(each for each in tables if len(each.data))
    texts = (RULE_TEXT, *map(_describe_source, studies, labels), STATUS_TEXT, TRADEMARK_NOTICE)
    return Chapter("Comparison of sources", _describe_speedups(pairs), texts, filled_tables)


def _describe_speedups(pairs: pd.DataFrame) -> str:
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
    facts = (format_count(len(results.rows), "result"), results.unscored_summary, rules)
    return f"{label}: {'; '.join(filter(None, facts))}."


def _fastest_rows(study: MlperfStudy, label: str) -> Iterator[dict[str, object]]:
    for workload in study.workloads:
        top = min((each.result for each in workload.systems), key=_minutes_of)
        yield {
            "workload": workload.name,
            "source": label,
            "systems": len(workload.systems),
            "system": f"{top.submitter} {top.system}",
            "accelerator_kind": top.accelerator_kind,
            "accelerators": top.accelerator_count,
            "minutes": top.minutes,
        }


def _compare_sizes(studies: Sequence[MlperfStudy], labels: Sequence[str]) -> Iterator[dict[str, object]]:
    """Yield the rows of each size of a workload that two consecutive sources with this size have."""
    results_by_size: dict[ComparisonKey, dict[str, list[MlperfResult]]] = {}
    for study, label in zip(studies, labels, strict=True):
        for workload in study.workloads:
            for result in (each.result for each in workload.systems):
                size = workload.name, result.accelerator_kind, result.accelerator_count
                results_by_size.setdefault(size, {}).setdefault(label, []).append(result)
    names = list(dict.fromkeys(name for name, _, _ in results_by_size))
    for size in sorted(results_by_size, key=lambda size: (names.index(size[0]), *size[1:])):
        for (earlier, old_results), (later, new_results) in pairwise(results_by_size[size].items()):
            for old, new in _pair_results(old_results, new_results):
                yield {
                    **dict(zip(("workload", "accelerator_kind", "accelerators"), size, strict=True)),
                    "earlier": earlier,
                    "earlier_minutes": old.minutes,
                    "later": later,
                    "later_minutes": new.minutes,
                    "speedup": old.minutes / new.minutes,
                    "submitter_and_software": describe_submitter_and_software((old, new)),
                }


def _pair_results(
    old_results: Sequence[MlperfResult], new_results: Sequence[MlperfResult]
) -> Iterator[tuple[MlperfResult, MlperfResult]]:
    """Yield the fastest result of each source, for each submitter and software that both sources have.

    If the sources have none in common, yield the fastest results of all.
    """
    old_by_stack, new_by_stack = _fastest_by_stack(old_results), _fastest_by_stack(new_results)
    common_stacks = sorted(old_by_stack.keys() & new_by_stack.keys())
    yield from ((old_by_stack[stack], new_by_stack[stack]) for stack in common_stacks)
    if not common_stacks:
        yield min(old_results, key=_minutes_of), min(new_results, key=_minutes_of)


def _fastest_by_stack(results: Sequence[MlperfResult]) -> dict[tuple[str, str], MlperfResult]:
    slowest_first = sorted(results, key=_minutes_of, reverse=True)
    return {result.stack: result for result in slowest_first}


def _minutes_of(result: MlperfResult) -> float:
    return result.minutes
