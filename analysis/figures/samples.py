"""Figure `samples`: pictures that the trained models generated, or objects that they detected in test pictures."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.drawing.style import FIGURE_WIDTH_IN, PALETTE, add_run_title_and_footer, create_figure
from analysis.report.wording import format_number
from analysis.results.trial_result import TrialResult
from services.learning.objectives.detection.boxes import compute_iou
from services.learning.sample_pictures import MAX_LEVEL, PictureBox, SamplePictures
from services.schema.arrays import HostArray

MAX_SHOWN_TRIALS = 4  # more pictures would fill the page
PANEL_COLUMNS = {"generated": 2, "detected": 1}  # trials beside each other
GAP_PIXELS = 1  # between two pictures
GAP_LEVEL = 0.6
MIN_IOU = 0.5  # from this IoU on, a predicted box of the same class is matched to a true box
TRUE_COLOUR = "#ffffff"
CAPTIONS = {
    "generated": (
        "Pictures that the model of each trial generated from the same noise with its final parameters; one column per "
        "class that was asked for. Only the first finished repeat on the most workers of each strategy is shown."
    ),
    "detected": (
        "The first test pictures, with the objects that the model of each trial detects with its final parameters. "
        "White, dashed: true boxes. Coloured: predicted boxes with a probability of at least 0.5; the number is the "
        "class, the colour stands for the class. A predicted box is right if it overlaps a true box of its class by at "
        "least 0.5 (intersection over union), each true box once. Only the first finished repeat on the most workers "
        "of each strategy is shown."
    ),
}


class ShownTrial(NamedTuple):
    """Trial whose pictures are shown."""

    result: TrialResult
    pictures: SamplePictures


def draw_sample_pictures(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw the pictures of the trained model of each strategy, one strategy below the other."""
    shown = _choose_shown_trials(run)
    if not shown:
        return None
    content = shown[0].pictures.content
    mosaics = [_arrange_in_grid(trial.pictures) for trial in shown]
    columns = PANEL_COLUMNS[content]
    rows = -(-len(shown) // columns)
    row_height_in = 0.3 + FIGURE_WIDTH_IN / columns * max(len(mosaic) / mosaic.shape[1] for mosaic in mosaics)
    figure, panels = create_figure(rows, columns, 0.9 + rows * row_height_in)
    title = _figure_title(shown)
    add_run_title_and_footer(figure, run.summary, title)
    for axes, trial, mosaic in zip(panels, shown, mosaics, strict=False):
        _draw_pictures(axes, trial, mosaic)
    for axes in panels[len(shown) :]:
        axes.remove()
    return CaptionedFigure("samples", title, CAPTIONS[content], _make_picture_table(shown), figure)


def _choose_shown_trials(run: AnalysedRun) -> list[ShownTrial]:
    """Return the first finished trial of each strategy on its largest number of workers, if it has pictures.

    All have pictures of one content, that of the first trial: a sweep may contain several models.
    """
    pairs = zip(run.table.trials, run.summary.trials, strict=True)
    finished = [
        ShownTrial(result, trial.sample_pictures)
        for trial, result in pairs
        if trial.sample_pictures and result.is_finished
    ]
    by_strategy: dict[str, ShownTrial] = {}
    for shown in sorted(finished, key=lambda shown: (-shown.result.workers, shown.result.repeat)):
        by_strategy.setdefault(shown.result.strategy, shown)
    trials = list(by_strategy.values())
    return [trial for trial in trials if trial.pictures.content == trials[0].pictures.content][:MAX_SHOWN_TRIALS]


def _figure_title(shown: Sequence[ShownTrial]) -> str:
    """Return what the pictures of the first trial show, as a sentence."""
    result, pictures = shown[0]
    if pictures.content == "generated":
        return f"The final model of {result.id} generated {len(pictures.levels)} pictures ({_final_metric(result)})"
    true_count, right_count, predicted_count = _count_boxes(pictures)
    return (
        f"The final model of {result.id} finds {right_count} of {true_count} objects in {len(pictures.levels)} test "
        f"pictures, with {_count_wrong_boxes(predicted_count - right_count)}"
    )


def _count_wrong_boxes(count: int) -> str:
    return {0: "no wrong box", 1: "1 wrong box"}.get(count, f"{count} wrong boxes")


def _final_metric(result: TrialResult) -> str:
    """Return the first final metric of a trial, such as "denoising_error 0.087"."""
    name, value = next(iter(result.final.items()))
    return f"{name} {format_number(value)}"


def _count_boxes(pictures: SamplePictures) -> tuple[int, int, int]:
    """Return the numbers of true boxes, of true boxes that a predicted box finds, and of predicted boxes."""
    true_count = right_count = predicted_count = 0
    for boxes in pictures.boxes:
        true_boxes, predicted_boxes = (
            [box for box in boxes if (box.score is None) == is_true] for is_true in (True, False)
        )
        true_count, predicted_count = true_count + len(true_boxes), predicted_count + len(predicted_boxes)
        right_count += _count_found_boxes(true_boxes, predicted_boxes)
    return true_count, right_count, predicted_count


def _count_found_boxes(true_boxes: Sequence[PictureBox], predicted_boxes: Sequence[PictureBox]) -> int:
    """Return how many true boxes of one picture are found; the most probable prediction chooses first."""
    unfound = list(true_boxes)
    for predicted in sorted(predicted_boxes, key=lambda box: -(box.score or 0)):
        ious = [_iou(predicted, box) if box.class_number == predicted.class_number else 0 for box in unfound]
        if ious and max(ious) >= MIN_IOU:
            del unfound[int(np.argmax(ious))]
    return len(true_boxes) - len(unfound)


def _iou(first: PictureBox, second: PictureBox) -> float:
    return float(compute_iou(np.array([first[2:]], float), np.array([second[2:]], float))[0, 0])


def _columns(pictures: SamplePictures) -> int:
    """Return the number of pictures in a row: one per class if they were generated, else all."""
    return len(set(pictures.class_numbers)) or len(pictures.levels)


def _arrange_in_grid(pictures: SamplePictures) -> HostArray:
    """Return one large picture (height, width, 3) of all pictures, with gaps between them, values from 0 to 1."""
    count, channels, height, width = pictures.levels.shape
    columns = _columns(pictures)
    rows = -(-count // columns)
    cells = np.full((rows * columns, height + GAP_PIXELS, width + GAP_PIXELS, 3), GAP_LEVEL)
    colours = pictures.levels.transpose(0, 2, 3, 1) / MAX_LEVEL
    cells[:count, :height, :width] = colours if channels == 3 else colours[..., :1]  # noqa: PLR2004 - red, green, blue
    cells = cells.reshape(rows, columns, *cells.shape[1:]).transpose(0, 2, 1, 3, 4)
    return np.asarray(cells.reshape(rows * (height + GAP_PIXELS), columns * (width + GAP_PIXELS), 3))


def _draw_pictures(axes: Axes, trial: ShownTrial, mosaic: HostArray) -> None:
    axes.imshow(mosaic, extent=(0, mosaic.shape[1], mosaic.shape[0], 0), interpolation="nearest")
    axes.set_title(f"{trial.result.id}: {_final_metric(trial.result)}")
    axes.set_axis_off()
    height, width = (side + GAP_PIXELS for side in trial.pictures.levels.shape[2:])
    columns = _columns(trial.pictures)
    for number, boxes in enumerate(trial.pictures.boxes):
        row, column = divmod(number, columns)
        for box in boxes:
            _draw_box(axes, box, column * width, row * height)


def _draw_box(axes: Axes, box: PictureBox, x: float, y: float) -> None:
    is_true = box.score is None
    colour = TRUE_COLOUR if is_true else PALETTE[box.class_number % len(PALETTE)]
    corner, size = (x + box.left, y + box.top), (box.right - box.left, box.bottom - box.top)
    line_style = "--" if is_true else "-"
    axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=colour, linestyle=line_style, linewidth=1.3))
    if not is_true:
        axes.text(
            *corner,
            str(box.class_number),
            color="white",
            fontsize=6,
            va="bottom",
            ha="left",
            clip_on=True,
            bbox={"facecolor": colour, "edgecolor": "none", "pad": 0.6},
        )


def _make_picture_table(shown: Sequence[ShownTrial]) -> pd.DataFrame:
    """Return the boxes of all pictures, or the pixels of generated pictures, one per row."""
    if shown[0].pictures.content == "detected":
        box_rows = [
            (trial.result.id, number, *box) for trial in shown for number, box in _numbered_boxes(trial.pictures)
        ]
        box_columns = ["trial", "picture", "class", "score", "left", "top", "right", "bottom"]
        return pd.DataFrame(box_rows, columns=box_columns)
    columns = ["trial", "picture", "class", "channel", "row", "column", "value"]
    return pd.DataFrame([row for trial in shown for row in _pixel_rows(trial)], columns=columns)


def _numbered_boxes(pictures: SamplePictures) -> Iterator[tuple[int, PictureBox]]:
    return ((number, box) for number, boxes in enumerate(pictures.boxes) for box in boxes)


def _pixel_rows(trial: ShownTrial) -> Iterator[tuple[object, ...]]:
    levels = trial.pictures.levels
    for (picture, channel, row, column), level in np.ndenumerate(levels):
        class_number = trial.pictures.class_numbers[picture]
        yield trial.result.id, picture, class_number, channel, row, column, level / MAX_LEVEL
