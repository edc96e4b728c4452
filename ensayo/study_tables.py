"""What did others find? The chapters of a study for the terminal."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from analysis.mlperf.chapters import Chapter
from analysis.mlperf.chapters import ChapterTable as Numbers
from analysis.mlperf.reading.folders import read_results
from analysis.mlperf.reading.results import SHIPPED_RESULTS_PATH
from analysis.mlperf.report import make_chapters, write_study_report
from analysis.mlperf.study import make_study
from analysis.reading.parallel import ProcessPool
from ensayo.tables import console


def tell(data: Path | None, out: Path, team: ProcessPool) -> Path:
    """Studies `data`, or the results that ship: chapters go to the terminal as they come, and all of it into `out`."""
    results = make_study(read_results(data or SHIPPED_RESULTS_PATH))
    return write_study_report(results, _printed(make_chapters(results)), out, team)


def _printed(written: Iterable[Chapter]) -> Iterator[Chapter]:
    for chapter in written:
        console().print(*shown(chapter), sep="\n")
        yield chapter


def shown(chapter: Chapter) -> Iterator[RenderableType]:
    """A chapter's finding and those of its tables that are short."""
    yield Text(chapter.finding, style="bold")
    yield from (_table(numbers) for numbers in chapter.tables if numbers.is_short)
    yield ""


def _table(numbers: Numbers) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in numbers.columns:
        table.add_column(
            column.heading, justify="right" if numbers.is_right_aligned(column) else "left", overflow="fold"
        )
    for row in numbers.formatted_rows():
        table.add_row(*map(escape, row))
    return table
