"""Tests of the detector: outputs belong to their anchors, classes are improbable at first, and pictures show boxes."""

import numpy as np
import pytest

from services.learning.datasets import LearningTask, Scenes
from services.learning.layers.base import PassContext
from services.learning.models import RetinaNetMini
from services.learning.models.retinanet_mini import DetectionHeads
from services.learning.objectives.detection.anchors import DEFAULT_ANCHORS
from services.learning.objectives.detection.predictions import MIN_SCORE

SIDE = 32
TASK = LearningTask(inputs=(3, SIDE, SIDE), outputs=3, loss="detection")
MODEL = RetinaNetMini(width=8)


def test_classes_have_a_small_probability_at_the_start() -> None:
    """Otherwise the many anchors of the background would dominate the first steps: Lin et al., section 3.3."""
    x = Scenes(samples=20).load("float32").train_x
    params = MODEL.init_parameters(TASK, 0, "float32")

    outputs = MODEL.create_output_function(TASK, params, x)(x)

    probabilities = 1 / (1 + np.exp(-outputs[..., :3]))
    assert np.median(probabilities) == pytest.approx(0.01, rel=0.2)


@pytest.mark.parametrize(("level", "row", "column"), [(0, 0, 0), (0, 2, 5), (1, 0, 3), (1, 3, 1)])
def test_outputs_belong_to_the_anchors_at_their_place(level: int, row: int, column: int) -> None:
    """Outputs are matched with anchors by their order alone.

    The heads pass a single feature on, with another factor for each output of a place.
    """
    sides, places = DEFAULT_ANCHORS.level_sides(SIDE), DEFAULT_ANCHORS.anchors_per_cell
    heads = DetectionHeads(features=2, classes=3, sides=sides)
    arrays = {name: np.zeros(shape) for name, shape in heads.parameter_shapes().items()}
    for head, entries in (("class", 3), ("box", 4)):
        arrays[f"{head}.hidden.weight"][0, 0, 1, 1] = 1
        arrays[f"{head}.output.weight"][:, 0, 1, 1] = np.arange(1, places * entries + 1)
    features = np.zeros((2, sum(side**2 for side in sides), 1))
    features[0, sum(side**2 for side in sides[:level]) + row * sides[level] + column] = 1

    (outputs,), _ = heads.forward(arrays, features, PassContext())

    (numbers,) = np.nonzero(outputs.any(axis=1))
    assert outputs[numbers, :3].reshape(-1).tolist() == list(range(1, 3 * places + 1))
    assert outputs[numbers, 3:].reshape(-1).tolist() == list(range(1, 4 * places + 1))
    boxes, stride = DEFAULT_ANCHORS.boxes(SIDE)[numbers], DEFAULT_ANCHORS.strides[level]
    assert ((boxes[:, :2] + boxes[:, 2:]) / 2 == [(column + 0.5) * stride, (row + 0.5) * stride]).all()
    assert (boxes[:, 2] - boxes[:, 0]).tolist() == list(DEFAULT_ANCHORS.sides[level])


def test_sample_pictures_show_true_and_predicted_boxes() -> None:
    """The figure compares both; predictions below the shown probability are left out."""
    data = Scenes(samples=60).load("float32")
    params = MODEL.init_parameters(data.task, 0, "float32")
    layout = MODEL.parameter_layout(data.task)
    arrays = {name: array.copy() for name, array in layout.unpack(params).items()}
    arrays["class.output.bias"][0] = 3.0  # class 0 at the smallest anchors of all places

    without, with_predictions = (MODEL.create_sample_pictures(data, each) for each in (params, layout.pack(arrays)))

    for pictures in (without, with_predictions):
        assert pictures.levels.shape == (6, 3, SIDE, SIDE)
        for boxes, targets in zip(pictures.boxes, data.test_y, strict=False):
            true_rows = [[box.class_number, *box[2:]] for box in boxes if box.score is None]
            assert true_rows == targets[targets[:, 0] >= 0].tolist()
    assert all(box.score is None for boxes in without.boxes for box in boxes)
    scores = [box.score for boxes in with_predictions.boxes for box in boxes if box.score is not None]
    assert scores
    assert min(scores) >= 0.5 > MIN_SCORE
