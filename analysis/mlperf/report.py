"""The study as a folder: a page, tables and figures.

report.html  results.csv  tables/*.csv  figures/*.{svg,png,csv,json}
"""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from analysis.figures.base import Drawing
from analysis.figures.drawing.style import figure_style
from analysis.mlperf.chapters import CHAPTERS, NEEDS, Chapter, absent
from analysis.mlperf.reading.results import write_csv
from analysis.mlperf.study import Study
from analysis.reading.parallel import ProcessPool
from analysis.report.report import load_template, write_panel


def chapters(study: Study) -> Iterator[Chapter]:
    """All chapters that have something to say, one by one, and what the others would need."""
    needed: dict[str, str] = {}
    for write_chapter in CHAPTERS:
        with figure_style():
            chapter = write_chapter(study)
        if chapter is None:
            needed |= [NEEDS[write_chapter]]
        open_questions = absent(needed) if write_chapter is CHAPTERS[-1] else None  # where it comes from stands last
        yield from filter(None, (open_questions, chapter))


def write(study: Study, written: Iterable[Chapter], folder: Path, team: ProcessPool | None = None) -> Path:
    """Writes the folder and returns the page; the same study gives the same bytes.

    `team`: who saves figures, as soon as their chapter comes, if not this process alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    told: list[Chapter] = []
    save = partial(write_panel, folder=folder / "figures")
    panels = (team or ProcessPool(single_process=True)).map(save, _drawings(written, told))
    _write_tables(study, told, folder)
    page = folder / "report.html"
    by_name = {each.name: each for each in panels}
    filled = load_template("mlperf/study.html.j2").render(chapters=told, panels=by_name, source=study.results.name)
    page.write_text(filled, encoding="utf-8")
    return page


def _drawings(written: Iterable[Chapter], told: list[Chapter]) -> Iterator[Drawing]:
    """The figures of all chapters, which are kept in `told`."""
    for chapter in written:
        told.append(chapter)
        yield from chapter.figures


def _write_tables(study: Study, written: Iterable[Chapter], folder: Path) -> None:
    (folder / "tables").mkdir(exist_ok=True)
    write_csv(study.results.rows, folder / "results.csv")
    for table in (table for chapter in written for table in chapter.tables):
        path = folder / "tables" / f"{table.name}.csv"
        table.data.to_csv(path, index=False, float_format="%.9g", lineterminator="\n")
