"""Where do the numbers come from, what do they lack, and what are they not?"""

import pandas as pd

from analysis.mlperf.chapters.base import Chapter, Column, Table
from analysis.mlperf.figures.frame import TRADEMARK
from analysis.mlperf.reading.results import Result
from analysis.mlperf.study import NAMES, Study
from analysis.report.wording import format_count

SHIPPED_ORIGIN = (
    "The minutes of training_v4.1.csv were computed from the run logs of the closed division that MLCommons published "
    "(GitHub mlcommons/training_results_v4.1, commit b87b9e3), not copied from the published table; they equal what "
    "MLCommons' own scorer gives for these logs. One Llama 2 70B LoRA result (Clemson 7x8xH100-SXM5-80GB) is missing, "
    "because its logs could not be had, and a second listing of one Dell system's runs was left out. Before you cite a "
    "number as an official result, look it up at mlcommons.org."
)
STANDING = (
    "Speedups, efficiencies, clusters and whatever else is derived here are neither MLPerf results nor MLPerf metrics; "
    "MLCommons has not verified them."
)
NOTED = (Column("workload", "workload"), Column("who", "system"), Column("note", "note"))
LEFT_OUT = (Column("what", "left out"), Column("why", "why"))


def sources(study: Study) -> Chapter:
    """Origin, gaps and standing of the results."""
    noted = pd.DataFrame([_noted(row) for row in study.results.rows if row.note])
    left_out = pd.DataFrame([_left_out(each) for each in study.results.left_out])
    tables = (
        Table("notes", "Results with a run that was not counted", NOTED, noted, brief=False),
        Table("left-out", "Read but not scored", LEFT_OUT, left_out),
    )
    read = study.results
    finding = f"Read from {read.name}: {format_count(len(read.rows), 'result')}, {len(read.left_out)} left out."
    origin = [SHIPPED_ORIGIN] if read.shipped else []
    return Chapter(
        "Sources and limits", finding, (*origin, STANDING, TRADEMARK), tuple(each for each in tables if len(each.data))
    )


def _noted(row: Result) -> dict[str, str]:
    return {
        "workload": NAMES.get(row.benchmark, row.benchmark),
        "who": f"{row.submitter} {row.system}",
        "note": row.note,
    }


def _left_out(line: str) -> dict[str, str]:
    what, _, why = line.partition(": ")
    return {"what": what, "why": why}
