"""Every chapter of the study of public results through one battery, on results as they come and as they should not."""

import pickle
import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from analysis.figures.base import Drawing
from analysis.figures.drawing.style import figure_style_context
from analysis.mlperf.chapters import CHAPTERS, Chapter, ChapterWriter
from analysis.mlperf.reading.results import MlperfResult, MlperfResults, read_results_csv
from analysis.mlperf.study import MlperfStudy, make_study

every_chapter = pytest.mark.parametrize("write", CHAPTERS, ids=lambda write: write.__name__)


def made_up(*sizes: tuple[int, float], benchmark: str = "bert") -> MlperfStudy:
    """A study of one workload with systems of so many accelerators and minutes."""
    rows = [
        MlperfResult(benchmark=benchmark, submitter="We", system=f"box-{place}", accelerator="X1",
               accelerator_count=count, minutes=took)
        for place, (count, took) in enumerate(sizes)
    ]  # fmt: skip
    return make_study(MlperfResults(tuple(rows), "mine.csv"))


STUDIES: dict[str, Callable[[], MlperfStudy]] = {
    "shipped": lambda: make_study(read_results_csv()),
    "one system": lambda: made_up((8, 5.0)),
    "two that are equal": lambda: made_up((8, 5.0), (8, 5.0)),
    "no accelerator more": lambda: made_up((8, 5.0), (8, 4.0), (8, 3.0), (8, 2.0)),
    "larger is slower": lambda: made_up((1, 5.0), (64, 50.0), (4096, 500.0)),
    "an unknown workload": lambda: made_up((1, 5.0), (2, 4.0), (4, 2.0), benchmark="weather"),
}


every_study = pytest.mark.parametrize("of", STUDIES)


@cache
def written(write: ChapterWriter, of: str) -> Chapter | None:
    """What a chapter says of one study."""
    with figure_style_context():
        return write(STUDIES[of]())


@every_chapter
@every_study
def test_a_chapter_answers_in_a_sentence_and_shows_no_number_that_is_none(write: ChapterWriter, of: str) -> None:
    """A study of three systems is as good a question as one of a hundred: a chapter answers or keeps silent."""
    chapter = written(write, of)
    if chapter is None:
        return

    assert chapter.title
    assert re.fullmatch(r"[A-Z0-9].*\.", chapter.finding)
    for text in (chapter.finding, *chapter.paragraphs, *(drawing.title for drawing in chapter.figures)):
        assert not re.search(r"\b(nan|inf|None)\b", text)


@every_chapter
@every_study
def test_every_table_has_its_columns_and_as_many_cells_as_heads(write: ChapterWriter, of: str) -> None:
    """The page and the terminal show the columns that are named; the CSV has all of the data."""
    chapter = written(write, of)
    for table in chapter.tables if chapter else ():
        assert len(table.data) > 0
        assert {column.name for column in table.columns} <= set(table.data.columns)
        for row in table.formatted_rows():
            assert len(row) == len(table.columns)
            assert not {"nan", "inf", "None", "NaN"} & set(row)


@every_chapter
@every_study
def test_everything_that_is_drawn_lies_within_its_panel_and_page(write: ChapterWriter, of: str) -> None:
    """A point beyond an axis is not seen, a text beyond the page is cut."""
    chapter = written(write, of)
    for drawing in chapter.figures if chapter else ():
        assert len(drawing.data) > 0
        assert outside(drawing) == []


@every_chapter
def test_every_figure_can_be_sent_to_the_process_that_saves_it(write: ChapterWriter) -> None:
    """Two processes share the saving, which takes as long as all else."""
    chapter = written(write, "shipped")
    for drawing in chapter.figures if chapter else ():
        assert pickle.loads(pickle.dumps(drawing)).title == drawing.title  # noqa: S301 - our own


def outside(drawing: Drawing) -> list[str]:
    """What lies beyond its frame, in pixels so that it holds for any scale."""
    drawing.figure.draw_without_rendering()
    found = []
    for axes in drawing.figure.axes:
        low, high = np.asarray(axes.bbox.min) - 1, np.asarray(axes.bbox.max) + 1
        for line in axes.lines:
            places = line.get_transform().transform(np.asarray(line.get_xydata(), dtype=float))
            if np.any((places < low) | (places > high)):
                found.append(f"{drawing.name}: a line of {axes.get_title()}")
    page, drawn = drawing.figure.bbox, drawing.figure.get_tightbbox()
    width, height = (extent * drawing.figure.dpi for extent in (drawn.x1, drawn.y1))
    if drawn.x0 < -0.02 or drawn.y0 < -0.02 or width > page.width + 2 or height > page.height + 2:
        found.append(f"{drawing.name}: text beyond the page")
    return found


def test_no_two_tables_or_figures_have_one_name() -> None:
    """Names are names of files: the second would overwrite the first."""
    chapters = [chapter for write in CHAPTERS if (chapter := written(write, "shipped")) is not None]
    names = [each.name for chapter in chapters for each in (*chapter.tables, *chapter.figures)]

    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[\w.-]+", name) for name in names)
    assert len({chapter.title for chapter in chapters}) == len(chapters)
