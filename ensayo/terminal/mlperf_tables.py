"""Terminal output of the analysis of published MLPerf Training results."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from analysis.mlperf.chapters import Chapter
from analysis.mlperf.chapters import ChapterTable as StudyTable
from analysis.mlperf.chapters.rounds import rounds_chapter
from analysis.mlperf.reading.folders import read_mlperf_results
from analysis.mlperf.reading.results import SHIPPED_RESULTS_PATH
from analysis.mlperf.report import make_chapters, write_chapters, write_mlperf_report
from analysis.mlperf.rule_sets.rounds import RuleSet
from analysis.mlperf.study import MlperfStudy, make_mlperf_study
from analysis.reading.parallel import ProcessPool
from ensayo.mlperf_prices import read_accelerator_prices
from ensayo.terminal.tables import create_console
from services.schema.errors import UserError


def write_and_print_mlperf_study(
    data_paths: Sequence[Path],
    output_folder: Path,
    process_pool: ProcessPool,
    rule_set: RuleSet | None = None,
    prices_path: Path | None = None,
) -> Path:
    """Analyse published MLPerf Training results, and write a page, tables and figures.

    Each chapter of the page is also printed as soon as it is ready.

    Args:
        data_paths: CSV files or folders of published logs; none for the results that are shipped. Two or more are
            written to one folder each below the output folder, with a page that compares them.
        output_folder: folder of the page, the tables and the figures.
        process_pool: processes that draw the figures.
        rule_set: rules that logs are checked with; None for those of the round that is detected.
        prices_path: YAML file with declared prices and power draws of accelerators; None without one.

    Returns:
        The path of the page.

    Raises:
        UserError: the data have mistakes, or a rule set is given and no folder of logs.
    """
    if rule_set and not any(path.is_dir() for path in data_paths):
        raise UserError("--rules and --trust-published are for logs; add --data with a folder of published logs")
    results = [read_mlperf_results(path, rule_set) for path in data_paths or [SHIPPED_RESULTS_PATH]]
    prices = read_accelerator_prices(prices_path, results) if prices_path else None
    studies = [make_mlperf_study(each, prices) for each in results]
    if len(studies) == 1:
        return _write_and_print_study(studies[0], output_folder, process_pool)
    labels = make_unique_labels(study.results.source_name for study in studies)
    page_by_label = {}
    for study, label in zip(studies, labels, strict=True):
        create_console().print(Text(f"{label}\n", style="bold underline"))
        page = _write_and_print_study(study, output_folder / label, process_pool)
        page_by_label[label] = page.relative_to(output_folder).as_posix()
    chapters = _print_report_chapters([rounds_chapter(studies, labels)])
    return write_chapters(chapters, " · ".join(labels), page_by_label, output_folder, process_pool)


def _write_and_print_study(study: MlperfStudy, output_folder: Path, process_pool: ProcessPool) -> Path:
    return write_mlperf_report(study, _print_report_chapters(make_chapters(study)), output_folder, process_pool)


def make_unique_labels(source_names: Iterable[str]) -> list[str]:
    """Return a different folder name for each source, for example "mine" and "mine-2" for two files `mine.csv`."""
    labels: list[str] = []
    for stem in (name.removesuffix(".csv") for name in source_names):
        numbered = (f"{stem}-{number}" for number in count(2))
        labels.append(next(label for label in chain([stem], numbered) if label not in labels))
    return labels


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
