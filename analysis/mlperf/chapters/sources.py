"""Report chapter on the origin of the MLPerf results.

The chapter also lists missing results, and notes that derived numbers are unofficial.
"""

import pandas as pd

from analysis.mlperf.chapters.base import Chapter, ChapterTable, TableColumn
from analysis.mlperf.figures.frame import TRADEMARK_NOTICE
from analysis.mlperf.reading.results import MlperfResult
from analysis.mlperf.study import WORKLOAD_NAMES, MlperfStudy
from analysis.report.wording import format_count

SHIPPED_ORIGIN_TEXT = (
    "The minutes of training_v4.1.csv were computed from the run logs of the closed division that MLCommons published "
    "(GitHub mlcommons/training_results_v4.1, commit b87b9e3), not copied from the published table; they equal the "
    "scores that MLCommons' own scorer computes from these logs. One Llama 2 70B LoRA result (Clemson "
    "7x8xH100-SXM5-80GB) is missing because its logs were not available, and a second listing of one Dell system's "
    "runs is not scored. Before you cite a number as an official result, look it up at mlcommons.org."
)
STATUS_TEXT = (
    "Speedups, efficiencies, clusters and all other numbers derived here are neither MLPerf results nor MLPerf "
    "metrics; MLCommons has not verified them."
)
NOTE_COLUMNS = (TableColumn("workload", "workload"), TableColumn("who", "system"), TableColumn("note", "note"))
UNSCORED_COLUMNS = (TableColumn("what", "not scored"), TableColumn("why", "why"))


def make_data_sources_chapter(mlperf_study: MlperfStudy) -> Chapter:
    """Return the report chapter on the origin of the MLPerf results.

    The chapter also lists missing results, and says why derived numbers are unofficial.
    """
    notes = pd.DataFrame([_make_result_note_row(row) for row in mlperf_study.results.rows if row.remarks])
    unscored = pd.DataFrame([{"what": each.path, "why": each.reason} for each in mlperf_study.results.unscored_results])
    tables = (
        ChapterTable(
            "notes", "Results with missing runs, or a run that was not counted", NOTE_COLUMNS, notes, is_short=False
        ),
        ChapterTable("not-scored", "Results not scored", UNSCORED_COLUMNS, unscored),
    )
    results = mlperf_study.results
    result_count = format_count(len(results.rows), "result")
    finding = f"Read from {results.source_name}: {result_count}, {len(results.unscored_results)} not scored."
    origin = [SHIPPED_ORIGIN_TEXT] if results.is_shipped_with_ensayo else []
    filled_tables = tuple(each for each in tables if len(each.data))
    checks = [f"Logs: {results.rule_set.description}."] if results.rule_set else []
    return Chapter("Sources and limits", finding, (*origin, *checks, STATUS_TEXT, TRADEMARK_NOTICE), filled_tables)


def _make_result_note_row(mlperf_result: MlperfResult) -> dict[str, str]:
    workload = WORKLOAD_NAMES.get(mlperf_result.benchmark, mlperf_result.benchmark)
    return {
        "workload": workload,
        "who": f"{mlperf_result.submitter} {mlperf_result.system}",
        "note": mlperf_result.remarks,
    }
