"""What a chapter of the report is made of: a finding, sentences, tables and figures, all computed from a study.

A chapter is a function in a file of its own, `Study -> Chapter | None` (None: these results have nothing for it), and
stands in `CHAPTERS` (`__init__.py`). The page, the terminal and the folder of files are made from what it returns.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pandas as pd
from pandas.api.types import is_numeric_dtype

from analysis.figures.base import Drawing
from analysis.mlperf.study import Study
from analysis.report.wording import format_number


def plain(value: Any) -> str:
    """Whole numbers and words as they are, other numbers with three digits, a dash for what is missing."""
    if value is None or isinstance(value, float):
        return format_number(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Column:
    """A column of a table as people read it."""

    name: str  # in the data
    head: str  # above the column
    written: Callable[[Any], str] = plain


@dataclass(frozen=True)
class Table:
    """Rows with all their digits, and how people are shown them."""

    name: str  # file name without its ending
    title: str
    columns: tuple[Column, ...]  # what is shown, in this order; the CSV has every column of the data
    data: pd.DataFrame
    note: str = ""  # how to read it
    brief: bool = True  # short enough for the terminal

    def right(self, column: Column) -> bool:
        """Do its cells stand at the right, as numbers do?"""
        return is_numeric_dtype(self.data[column.name])

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The cells that are shown, written."""
        for record in self.data.to_dict("records"):
            yield tuple(column.written(record[column.name]) for column in self.columns)


@dataclass(frozen=True)
class Chapter:
    """One question about the results, answered."""

    title: str  # the question's topic, two to five words
    finding: str  # the answer in one computed sentence; stands on top of the page and on the terminal
    text: tuple[str, ...] = ()  # paragraphs: rules, limits, what the numbers do not say
    tables: tuple[Table, ...] = ()
    figures: tuple[Drawing, ...] = ()


Write: TypeAlias = Callable[[Study], Chapter | None]
