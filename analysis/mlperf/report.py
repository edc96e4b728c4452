"""Writer of the MLPerf study's output folder: report page, tables and figures.

report.html  results.csv  tables/*.csv  figures/*.{svg,png,csv,json}
"""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from analysis.figures.base import Drawing
from analysis.figures.drawing.style import figure_style
from analysis.mlperf.chapters import CHAPTER_NEEDS, CHAPTERS, Chapter, unanswered_chapter
from analysis.mlperf.reading.results import write_results_csv
from analysis.mlperf.study import Study
from analysis.reading.parallel import ProcessPool
from analysis.report.report import load_template, write_panel


def make_chapters(study: Study) -> Iterator[Chapter]:
    """Yield each chapter that the results have data for. The last but one lists the unanswered questions, if any."""
    need_by_title: dict[str, str] = {}
    for write_chapter in CHAPTERS:
        with figure_style():
            chapter = write_chapter(study)
        if chapter is None:
            need_by_title |= [CHAPTER_NEEDS[write_chapter]]
        is_last = write_chapter is CHAPTERS[-1]  # the chapter on sources stays at the end of the page
        unanswered = unanswered_chapter(need_by_title) if is_last else None
        yield from filter(None, (unanswered, chapter))


def write_study_report(
    study: Study, chapters: Iterable[Chapter], folder: Path, team: ProcessPool | None = None
) -> Path:
    """Write the report folder of a study and return the path of the report page.

    Equal studies give identical bytes. If a pool of processes is given, it saves the figures of each chapter while the
    next chapter is computed; otherwise the current process saves the figures.
    """
    folder.mkdir(parents=True, exist_ok=True)
    collected: list[Chapter] = []
    save = partial(write_panel, folder=folder / "figures")
    panels = (team or ProcessPool(single_process=True)).map(save, _collect_drawings(chapters, collected))
    _write_tables(study, collected, folder)
    page = folder / "report.html"
    panel_by_name = {each.name: each for each in panels}
    html = load_template("mlperf/study.html.j2").render(
        chapters=collected, panels=panel_by_name, source=study.results.source_name
    )
    page.write_text(html, encoding="utf-8")
    return page


def _collect_drawings(chapters: Iterable[Chapter], collected: list[Chapter]) -> Iterator[Drawing]:
    """Yield the figures of all chapters, and append each chapter to the given list when it is reached."""
    for chapter in chapters:
        collected.append(chapter)
        yield from chapter.figures


def _write_tables(study: Study, chapters: Iterable[Chapter], folder: Path) -> None:
    (folder / "tables").mkdir(exist_ok=True)
    write_results_csv(study.results.rows, folder / "results.csv")
    for table in (table for chapter in chapters for table in chapter.tables):
        path = folder / "tables" / f"{table.name}.csv"
        table.data.to_csv(path, index=False, float_format="%.9g", lineterminator="\n")
