"""Tests of every chapter of the study of public results, on the shipped results and on degenerate ones."""

import pickle
import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from analysis.figures.base import CaptionedFigure
from analysis.figures.drawing.style import figure_style_context
from analysis.mlperf.chapters import CHAPTERS, Chapter, ChapterWriter
from analysis.mlperf.reading.results import MlperfResult, MlperfResults, read_results_csv
from analysis.mlperf.study import MlperfStudy, make_mlperf_study

every_chapter = pytest.mark.parametrize("write", CHAPTERS, ids=lambda write: write.__name__)


def synthetic_study(*sizes: tuple[int, float], benchmark: str = "bert") -> MlperfStudy:
    """Return a study of one workload; each system is given as its number of accelerators and its minutes."""
    rows = [
        MlperfResult(benchmark=benchmark, submitter="We", system=f"box-{number}", accelerator="X1",
               accelerator_count=count, minutes=minutes)
        for number, (count, minutes) in enumerate(sizes)
    ]  # fmt: skip
    return make_mlperf_study(MlperfResults(tuple(rows), "mine.csv"))


STUDIES: dict[str, Callable[[], MlperfStudy]] = {
    "shipped": lambda: make_mlperf_study(read_results_csv()),
    "one system": lambda: synthetic_study((8, 5.0)),
    "two equal systems": lambda: synthetic_study((8, 5.0), (8, 5.0)),
    "equal numbers of accelerators": lambda: synthetic_study((8, 5.0), (8, 4.0), (8, 3.0), (8, 2.0)),
    "larger is slower": lambda: synthetic_study((1, 5.0), (64, 50.0), (4096, 500.0)),
    "an unknown workload": lambda: synthetic_study((1, 5.0), (2, 4.0), (4, 2.0), benchmark="weather"),
}


every_study = pytest.mark.parametrize("study", STUDIES)


@cache
def chapter_of(write: ChapterWriter, study: str) -> Chapter | None:
    """Return the chapter about one study, None if it does not apply."""
    with figure_style_context():
        return write(STUDIES[study]())


@every_chapter
@every_study
def test_chapter_has_a_finding_in_one_sentence_and_no_undefined_number(write: ChapterWriter, study: str) -> None:
    """A study may have three systems or a hundred: a chapter states a finding or is left out."""
    chapter = chapter_of(write, study)
    if chapter is None:
        return

    assert chapter.title
    assert re.fullmatch(r"[A-Z0-9].*\.", chapter.finding)
    for text in (chapter.finding, *chapter.paragraphs, *(drawing.title for drawing in chapter.figures)):
        assert not re.search(r"\b(nan|inf|None)\b", text)


@every_chapter
@every_study
def test_every_table_has_its_columns_and_one_cell_per_column(write: ChapterWriter, study: str) -> None:
    """The page and the terminal show the named columns; the CSV has all of the data."""
    chapter = chapter_of(write, study)
    for table in chapter.tables if chapter else ():
        assert len(table.data) > 0
        assert {column.name for column in table.columns} <= set(table.data.columns)
        for row in table.formatted_rows():
            assert len(row) == len(table.columns)
            assert not {"nan", "inf", "None", "NaN"} & set(row)


@every_chapter
@every_study
def test_every_drawn_line_and_text_lies_within_its_panel_and_page(write: ChapterWriter, study: str) -> None:
    """A point beyond an axis is invisible, a text beyond the page is cut off."""
    chapter = chapter_of(write, study)
    for drawing in chapter.figures if chapter else ():
        assert len(drawing.data) > 0
        assert elements_outside(drawing) == []


@every_chapter
def test_every_figure_can_be_pickled(write: ChapterWriter) -> None:
    """Figures are saved by two processes, because saving takes as long as all other work together."""
    chapter = chapter_of(write, "shipped")
    for drawing in chapter.figures if chapter else ():
        assert pickle.loads(pickle.dumps(drawing)).title == drawing.title  # noqa: S301 - our own


def elements_outside(drawing: CaptionedFigure) -> list[str]:
    """Return the elements beyond their frame, compared in pixels so that it works for any scale."""
    drawing.figure.draw_without_rendering()
    outside = []
    for axes in drawing.figure.axes:
        low, high = np.asarray(axes.bbox.min) - 1, np.asarray(axes.bbox.max) + 1
        for line in axes.lines:
            points = line.get_transform().transform(np.asarray(line.get_xydata(), dtype=float))
            if np.any((points < low) | (points > high)):
                outside.append(f"{drawing.name}: a line of {axes.get_title()}")
    page, extent = drawing.figure.bbox, drawing.figure.get_tightbbox()
    width, height = (inches * drawing.figure.dpi for inches in (extent.x1, extent.y1))
    if extent.x0 < -0.02 or extent.y0 < -0.02 or width > page.width + 2 or height > page.height + 2:
        outside.append(f"{drawing.name}: text beyond the page")
    return outside


def test_names_of_tables_and_figures_are_unique() -> None:
    """Names become file names: a duplicate would overwrite the first file."""
    chapters = [chapter for write in CHAPTERS if (chapter := chapter_of(write, "shipped")) is not None]
    names = [part.name for chapter in chapters for part in (*chapter.tables, *chapter.figures)]

    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[\w.-]+", name) for name in names)
    assert len({chapter.title for chapter in chapters}) == len(chapters)
