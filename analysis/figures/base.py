"""Records of a figure: its entry in the registry, and what its function takes and returns."""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from analysis.reading.run_table import RunLogTables
from analysis.results.summary import RunSummary


@dataclass(frozen=True)
class AnalysedRun:
    """Tables read from the logs of a run, and the summary computed from these tables."""

    table: RunLogTables
    summary: RunSummary


@dataclass(frozen=True)
class CaptionedFigure:
    """Finished figure with title, caption and a table of the data that the figure shows."""

    name: str  # file name without its ending
    title: str  # the finding, as one sentence
    caption: str  # how to read the figure: base case, rules, what was left out
    data: pd.DataFrame
    figure: Figure


@dataclass(frozen=True)
class ReportFigure:
    """Registered figure of the report: the function that draws it, and the data that a run needs for it."""

    draw: Callable[[AnalysedRun], CaptionedFigure | None]
    requirement: str  # completes the sentence "the figure needs ..."
