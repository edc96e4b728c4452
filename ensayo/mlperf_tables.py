"""Terminal output of the analysis of published MLPerf Training results."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from analysis.mlperf.chapters import Chapter
from analysis.mlperf.chapters import ChapterTable as StudyTable
from analysis.mlperf.reading.folders import read_mlperf_results
from analysis.mlperf.reading.results import SHIPPED_RESULTS_PATH
from analysis.mlperf.report import make_chapters, write_mlperf_report
from analysis.mlperf.study import make_mlperf_study
from analysis.reading.parallel import ProcessPool
from ensayo.tables import create_console


def write_and_print_mlperf_study(data_path: Path | None, output_folder: Path, process_pool: ProcessPool) -> Path:
    """Analyse published MLPerf Training results, and write a page, tables and figures.

    Each chapter of the page is also printed as soon as it is ready.

    Args:
        data_path: CSV file or folder of published logs; None for the results that are shipped.
        output_folder: folder of the page, the tables and the figures.
        process_pool: processes that draw the figures.

    Returns:
        The path of the page.
    """
    results = make_mlperf_study(read_mlperf_results(data_path or SHIPPED_RESULTS_PATH))
    return write_mlperf_report(results, _print_report_chapters(make_chapters(results)), output_folder, process_pool)


def _print_report_chapters(chapters: Iterable[Chapter]) -> Iterator[Chapter]:
    for chapter in chapters:
        create_console().print(*render_terminal_chapter(chapter), sep="\n")
        yield chapter


def render_terminal_chapter(report_chapter: Chapter) -> Iterator[RenderableType]:
    """Yield the main finding and the short tables of a report chapter for the terminal.

    Tables that are too long for a terminal are left out.
    """
    yield Text(report_chapter.finding, style="bold")
    yield from (_terminal_table(table) for table in report_chapter.tables if table.is_short)
    yield ""


def _terminal_table(table: StudyTable) -> Table:
    grid = Table(box=None, pad_edge=False)
    for column in table.columns:
        grid.add_column(column.heading, justify="right" if table.is_right_aligned(column) else "left", overflow="fold")
    for row in table.formatted_rows():
        grid.add_row(*map(escape, row))
    return grid
