"""Writer of the MLPerf study's output folder: report page, tables and figures.

report.html  results.csv  tables/*.csv  figures/*.{svg,png,csv,json}
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from analysis.figures.base import CaptionedFigure
from analysis.figures.drawing.style import figure_style_context
from analysis.mlperf.chapters import CHAPTER_NEEDS, CHAPTERS, Chapter, make_unanswered_chapter
from analysis.mlperf.reading.results import write_results_csv
from analysis.mlperf.study import MlperfStudy
from analysis.reading.parallel import ProcessPool
from analysis.report.report import load_template, write_figure_for_html_page

RESULTS_NAME = "results.csv"


def make_chapters(mlperf_study: MlperfStudy) -> Iterator[Chapter]:
    """Yield each report chapter for which the MLPerf results contain data.

    The last but one lists the unanswered questions, if any.
    """
    need_by_title: dict[str, str] = {}
    for write_chapter in CHAPTERS:
        with figure_style_context():
            chapter = write_chapter(mlperf_study)
        if chapter is None:
            need_by_title |= [CHAPTER_NEEDS[write_chapter]]
        is_last = write_chapter is CHAPTERS[-1]  # the chapter on sources stays at the end of the page
        unanswered = make_unanswered_chapter(need_by_title) if is_last else None
        yield from filter(None, (unanswered, chapter))


def write_mlperf_report(
    mlperf_study: MlperfStudy, chapters: Iterable[Chapter], out_folder: Path, process_pool: ProcessPool | None = None
) -> Path:
    """Write the report on a study of MLPerf results to a folder and return the path of the report page.

    Equal studies give identical bytes.
    """
    out_folder.mkdir(parents=True, exist_ok=True)
    page = write_chapters(
        chapters, mlperf_study.results.source_name, {RESULTS_NAME: RESULTS_NAME}, out_folder, process_pool
    )
    write_results_csv(mlperf_study.results.rows, out_folder / RESULTS_NAME)
    return page


def write_chapters(
    chapters: Iterable[Chapter],
    source_name: str,
    link_by_text: Mapping[str, str],
    out_folder: Path,
    process_pool: ProcessPool | None = None,
) -> Path:
    """Write chapters as a page, tables and figures to a folder and return the path of the page.

    If a pool of processes is given, it saves the figures of each chapter while the next chapter is computed; otherwise
    the current process saves the figures. `link_by_text` are links to all results, shown at the end of the page.
    """
    out_folder.mkdir(parents=True, exist_ok=True)
    collected: list[Chapter] = []
    save = partial(write_figure_for_html_page, figures_folder=out_folder / "figures")
    panels = (process_pool or ProcessPool(single_process=True)).map(save, _yield_chapter_figures(chapters, collected))
    _write_chapter_tables(collected, out_folder / "tables")
    page = out_folder / "report.html"
    panel_by_name = {each.name: each for each in panels}
    template = load_template("mlperf/study.html.j2")
    html = template.render(chapters=collected, panels=panel_by_name, source=source_name, links=link_by_text)
    page.write_text(html, encoding="utf-8")
    return page


def _yield_chapter_figures(chapters: Iterable[Chapter], visited_chapters: list[Chapter]) -> Iterator[CaptionedFigure]:
    """Yield the figures of all report chapters.

    Each chapter is appended to `visited_chapters` before its first figure is yielded.
    """
    for chapter in chapters:
        visited_chapters.append(chapter)
        yield from chapter.figures


def _write_chapter_tables(chapters: Iterable[Chapter], tables_folder: Path) -> None:
    tables_folder.mkdir(exist_ok=True)
    for table in (table for chapter in chapters for table in chapter.tables):
        path = tables_folder / f"{table.name}.csv"
        table.data.to_csv(path, index=False, float_format="%.9g", lineterminator="\n")
