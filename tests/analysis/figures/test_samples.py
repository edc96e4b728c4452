"""The figure of sample pictures: it shows what the log contains, and its title counts right and wrong boxes."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from analysis.figures import FIGURES, AnalysedRun, CaptionedFigure
from analysis.reading.run_folder import RunFolder
from analysis.results.analyse_run import analyse_run
from services.learning.sample_pictures import MAX_LEVEL, PictureBox, SamplePictures

PICTURE = np.zeros((2, 1, 8, 8), int)
TRUE = PictureBox(0, None, 1, 1, 5, 5)
RIGHT = PictureBox(0, 0.9, 1, 1, 5, 4.5)
DOUBLE = PictureBox(0, 0.8, 1, 1, 5, 5)
OTHER_CLASS = PictureBox(1, 0.9, 1, 1, 5, 5)
FAR = PictureBox(0, 0.7, 4, 4, 8, 8)

Draw = Callable[..., CaptionedFigure | None]


@pytest.fixture
def draw(make_run: Callable[..., RunFolder], line: Callable[..., str]) -> Draw:
    """Draw the figure of a run whose trials of ring and ps_bsp on two workers have logged these pictures."""

    def drawn(*pictures: SamplePictures, has_failed: bool = False) -> CaptionedFigure | None:
        folder = make_run(strategies=("ring", "ps_bsp"), workers=(1, 2))
        trials_on_two = [trial for trial in folder.trial_folders if "-w2-" in trial.path.name]
        for trial, pictures_of_trial in zip(trials_on_two, pictures, strict=False):
            with trial.log_path("coordinator").open("a") as log:
                log.write(line("sample_pictures", pictures_of_trial.to_log_value(), 300.0) + "\n")
        table, summary = analyse_run(folder)
        trials = tuple(replace(trial, status="failed") if has_failed else trial for trial in summary.trials)
        return FIGURES["samples"].draw(AnalysedRun(table, replace(summary, trials=trials)))

    return drawn


def detected(*boxes: tuple[PictureBox, ...]) -> SamplePictures:
    return SamplePictures("detected", PICTURE[: len(boxes)], (), boxes)


def test_runs_without_pictures_have_no_figure(draw: Draw) -> None:
    """Most models have no pictures to show."""
    assert draw() is None


def test_trials_that_did_not_finish_are_not_shown(draw: Draw) -> None:
    """Their model is not the result of the training that the report is about."""
    assert draw(detected((TRUE, RIGHT)), has_failed=True) is None


@pytest.mark.parametrize(
    ("boxes", "claim"),
    [
        (((TRUE, RIGHT), (TRUE, DOUBLE)), "finds 2 of 2 objects in 2 test pictures, with no wrong box"),
        (((TRUE, RIGHT, DOUBLE), ()), "finds 1 of 1 objects in 2 test pictures, with 1 wrong box"),
        (((TRUE, OTHER_CLASS, FAR), (TRUE,)), "finds 0 of 2 objects in 2 test pictures, with 2 wrong boxes"),
        (((TRUE,), (DOUBLE,)), "finds 0 of 1 objects in 2 test pictures, with 1 wrong box"),
    ],
)
def test_title_counts_found_objects_and_wrong_boxes(
    draw: Draw, boxes: tuple[tuple[PictureBox, ...], ...], claim: str
) -> None:
    """A box is right if it overlaps a true box of its class in the same picture, and each true box counts once."""
    drawing = draw(detected(*boxes))

    assert drawing
    assert drawing.title.endswith(claim)
    assert "-ring-w2-r0" in drawing.title


def test_data_are_the_boxes_of_the_log(draw: Draw) -> None:
    """Readers compute with the table what the figure shows."""
    drawing = draw(detected((TRUE, RIGHT), ()))

    assert drawing
    assert drawing.data.drop(columns="trial").to_numpy(dtype=float, na_value=np.nan).tolist() == [
        pytest.approx([0, 0, np.nan, 1, 1, 5, 5], nan_ok=True),
        [0, 0, 0.9, 1, 1, 5, 4.5],
    ]


def test_generated_pictures_are_shown_in_columns_by_class_and_as_data(draw: Draw) -> None:
    """Each pixel of the figure and of the table is the logged one."""
    levels = np.arange(4 * 4).reshape(4, 1, 2, 2)
    drawing = draw(SamplePictures("generated", levels, (0, 1, 0, 1)))

    assert drawing
    assert "generated 4 pictures" in drawing.title
    (mosaic,) = (image.get_array() for image in drawing.figure.axes[0].get_images())
    assert mosaic is not None
    for number, (row, column) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        shown = np.asarray(mosaic)[3 * row : 3 * row + 2, 3 * column : 3 * column + 2, 0]
        np.testing.assert_allclose(shown, levels[number, 0] / MAX_LEVEL)
    np.testing.assert_allclose(drawing.data["value"], levels.reshape(-1) / MAX_LEVEL)
    assert drawing.data["class"].tolist() == np.repeat([0, 1, 0, 1], 4).tolist()


def test_trials_are_shown_one_below_the_other(draw: Draw) -> None:
    """The reader compares strategies by what their models do."""
    drawing = draw(detected((TRUE, RIGHT)), detected((TRUE,)))

    assert drawing
    assert [axes.get_title().split(":")[0][4:] for axes in drawing.figure.axes] == ["ring-w2-r0", "ps_bsp-w2-r0"]
    assert drawing.data["trial"].nunique() == 2


def test_only_pictures_of_one_content_are_shown(draw: Draw) -> None:
    """A sweep may contain several models; one caption and one table fit only one content."""
    drawing = draw(detected((TRUE, RIGHT)), SamplePictures("generated", PICTURE, (0, 1)))

    assert drawing
    assert drawing.data["trial"].nunique() == 1
    assert len(drawing.figure.axes) == 1


def test_damaged_pictures_are_reported_as_damage(make_run: Callable[..., RunFolder], line: Callable[..., str]) -> None:
    """A report that ends with an error would show nothing of the other trials."""
    folder = make_run(strategies=("ring",), workers=(2,), repeats=2, baseline=False)
    value = detected((TRUE, RIGHT)).to_log_value() | {"pixels": "AAAA"}
    with folder.trial_folders[0].log_path("coordinator").open("a") as log:
        log.write(line("sample_pictures", value, 300.0) + "\n")

    table, summary = analyse_run(folder)

    (problem,) = table.file_damage
    assert "cannot be interpreted" in str(problem)
    assert len(summary.trials) == 1
