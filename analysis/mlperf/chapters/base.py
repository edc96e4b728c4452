"""Records of a chapter of the report on MLPerf results.

A chapter has a finding, paragraphs, tables and figures.

Each chapter has a file with a function that takes a study and returns a chapter, or None if the results lack the data.
`CHAPTERS` (`__init__.py`) lists these functions. The report page, the terminal output and the files show the returned
chapters.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pandas as pd
from pandas.api.types import is_numeric_dtype

from analysis.figures.base import CaptionedFigure
from analysis.mlperf.study import MlperfStudy
from analysis.report.wording import format_number


def format_table_cell(cell_value: Any) -> str:
    """Format the value of a table cell.

    Integers and words are written in full, other numbers with three digits, and None as a dash.
    """
    if cell_value is None or isinstance(cell_value, float):
        return format_number(cell_value)
    return f"{cell_value:,}" if isinstance(cell_value, int) and not isinstance(cell_value, bool) else str(cell_value)


@dataclass(frozen=True)
class TableColumn:
    """Column of a table in a report chapter.

    A column has a name in the data, a heading, and a function that formats a cell.
    """

    name: str  # column of the data
    heading: str
    format_cell: Callable[[Any], str] = format_table_cell


@dataclass(frozen=True)
class ChapterTable:
    """Table of a report chapter.

    The data have all digits. The page shows only the listed columns, with their formats.
    """

    name: str  # file name without suffix
    title: str
    columns: tuple[TableColumn, ...]  # shown in this order; the CSV has every column of the data
    data: pd.DataFrame
    note: str = ""  # how to read the table
    is_short: bool = True  # short enough for the terminal

    def is_right_aligned(self, table_column: TableColumn) -> bool:
        """Return whether a column of the table is aligned right.

        Columns of numbers are aligned right.
        """
        return is_numeric_dtype(self.data[table_column.name])

    def formatted_rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the formatted cells of each row, in the order of the columns."""
        for record in self.data.to_dict("records"):
            yield tuple(column.format_cell(record[column.name]) for column in self.columns)


@dataclass(frozen=True)
class Chapter:
    """Chapter of the report on MLPerf results, which answers one question about these results."""

    title: str  # topic of the question, two to five words
    finding: str  # answer in one sentence, shown at the top of the page and on the terminal
    paragraphs: tuple[str, ...] = ()  # definitions and limits of the numbers
    tables: tuple[ChapterTable, ...] = ()
    figures: tuple[CaptionedFigure, ...] = ()


ChapterWriter: TypeAlias = Callable[[MlperfStudy], Chapter | None]
