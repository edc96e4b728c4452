"""Input and result of a figure function."""

from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from analysis.reading.run_table import RunTable
from analysis.results.summary import RunSummary


@dataclass(frozen=True)
class AnalysedRun:
    """A run with the tables read from its logs and the summary computed from them."""

    table: RunTable
    summary: RunSummary


@dataclass(frozen=True)
class Drawing:
    """A finished figure with its title, caption and the data that it shows."""

    name: str  # file name without its ending
    title: str  # the finding, as one sentence
    caption: str  # how to read the figure: base case, rules, what was left out
    data: pd.DataFrame
    figure: Figure
