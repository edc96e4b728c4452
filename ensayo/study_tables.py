"""What did others find? The chapters of a study for the terminal."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from analysis.mlperf.chapters import Chapter
from analysis.mlperf.chapters import Table as Numbers
from analysis.mlperf.reading.folders import read
from analysis.mlperf.reading.results import SHIPPED
from analysis.mlperf.report import chapters, write
from analysis.mlperf.study import study
from analysis.reading.parallel import ProcessPool
from ensayo.tables import console


def tell(data: Path | None, out: Path, team: ProcessPool) -> Path:
    """Studies `data`, or the results that ship: chapters go to the terminal as they come, and all of it into `out`."""
    results = study(read(data or SHIPPED))
    return write(results, _printed(chapters(results)), out, team)


def _printed(written: Iterable[Chapter]) -> Iterator[Chapter]:
    for chapter in written:
        console().print(*shown(chapter), sep="\n")
        yield chapter


def shown(chapter: Chapter) -> Iterator[RenderableType]:
    """A chapter's finding and those of its tables that are short."""
    yield Text(chapter.finding, style="bold")
    yield from (_table(numbers) for numbers in chapter.tables if numbers.brief)
    yield ""


def _table(numbers: Numbers) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in numbers.columns:
        table.add_column(column.head, justify="right" if numbers.right(column) else "left", overflow="fold")
    for row in numbers.rows():
        table.add_row(*map(escape, row))
    return table
