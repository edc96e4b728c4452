"""What a figure is given, and what it gives."""

from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from analysis.reading.run_table import RunTable
from analysis.results.summary import RunSummary


@dataclass(frozen=True)
class Run:
    """A run as events and as numbers."""

    table: RunTable
    summary: RunSummary


@dataclass(frozen=True)
class Drawing:
    """A finished figure and the table behind it."""

    name: str  # file name without its ending
    title: str  # the finding
    caption: str  # how to read it: base case, rules, what was left out
    data: pd.DataFrame
    figure: Figure
