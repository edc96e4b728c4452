"""RetinaNet with a small residual backbone, for the detection of objects in small images.

T.-Y. Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017. We differ in size: two levels, one convolution per
head before the outputs, and group normalisation in the backbone, so that workers need no common statistics of a batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from services.learning.datasets.base import LearningTask, TrainTestData
from services.learning.layers.activations import Relu
from services.learning.layers.base import (
    BackwardPass,
    CompositeLayer,
    GradientGenerator,
    Layer,
    LayerCost,
    ParameterArrays,
    PassContext,
)
from services.learning.layers.chain import Chain
from services.learning.layers.convolution import Conv2d
from services.learning.layers.images import MoveSampleAxisLast
from services.learning.layers.initialisation import he_variance
from services.learning.layers.normalisation import GroupNorm
from services.learning.layers.pyramid import FeaturePyramid, LevelSharedLayer
from services.learning.layers.residual import Residual
from services.learning.layout import Shape
from services.learning.models.network_model import NetworkModel
from services.learning.objectives.detection.anchors import DEFAULT_ANCHORS
from services.learning.objectives.detection.boxes import BOX_ENTRIES
from services.learning.objectives.detection.predictions import PredictedBoxes, predict_boxes
from services.learning.sample_pictures import PictureBox, SamplePictures, pixel_levels
from services.schema.arrays import Array, HostArray, array_namespace

SAMPLE_COUNT = 6  # test pictures that show what the model detects
MIN_SAMPLE_SCORE = 0.5  # probability from which the pictures show a predicted object
IMAGE_AXES = 3  # channels, rows, columns
CHANNELS_PER_GROUP = 8  # of the group normalisation
PRIOR_PROBABILITY = 0.01  # of each class at each anchor, at the start: section 4.1 of the paper
OUTPUT_DEVIATION = 0.01  # standard deviation of the initial weights of a head's last layer, as in the paper
PRIOR_BIAS = -log((1 - PRIOR_PROBABILITY) / PRIOR_PROBABILITY)


class RetinaNetMini(NetworkModel):
    """Detector for square images: residual backbone, feature pyramid of two levels, and heads shared by both levels.

    The backbone is a convolution and three residual blocks with `width`, `width`, 2 · `width` and 4 · `width` channels;
    each block halves the resolution. The pyramid has the outputs of the last two blocks, with 2 · `width` features on
    each level. Each head has one hidden convolution. All kernels are 3x3, except those of shortcuts and lateral
    connections.
    """

    supported_losses: ClassVar = ("detection",)

    kind: Literal["retinanet_mini"] = "retinanet_mini"
    width: int = Field(
        default=16, gt=0, multiple_of=CHANNELS_PER_GROUP, description="channels of the first convolution"
    )

    def unsupported_task_reason(self, learning_task: LearningTask) -> str | None:
        inputs, stride = learning_task.inputs, DEFAULT_ANCHORS.strides[-1]
        is_suitable = len(inputs) == IMAGE_AXES and inputs[1] == inputs[2] and inputs[1] % stride == 0
        if is_suitable:
            return None
        return (
            f"retinanet_mini needs square images whose side is a multiple of {stride} pixels; a sample of this dataset "
            f"has shape {inputs}; use a dataset of such images, for example scenes"
        )

    def build_network(self, learning_task: LearningTask) -> Layer:
        (channels, side, _), width, features = learning_task.inputs, self.width, 2 * self.width
        stem = (_convolution("stem", channels, width), _norm("stem.norm", width), Relu())
        fine_stages = (_residual_block("stage1", width, width), _residual_block("stage2", width, 2 * width))
        pyramid = FeaturePyramid(
            stages=(Chain((*stem, *fine_stages)), _residual_block("stage3", 2 * width, 4 * width)),
            laterals=(Conv2d("lateral2", 2 * width, features, 1), Conv2d("lateral3", 4 * width, features, 1)),
            smooths=(_convolution("smooth2", features, features), _convolution("smooth3", features, features)),
        )
        heads = DetectionHeads(features, learning_task.outputs, DEFAULT_ANCHORS.level_sides(side))
        return Chain((MoveSampleAxisLast(), pyramid, heads))

    def create_sample_pictures(self, data: TrainTestData, params: HostArray) -> SamplePictures:
        """Return the first test pictures with their objects, and with the objects that the model detects."""
        pictures, targets = data.test_x[:SAMPLE_COUNT], data.test_y[:SAMPLE_COUNT]
        predicted = predict_boxes(self.create_output_function(data.task, params, data.train_x)(pictures))
        boxes = tuple(
            (*_list_true_boxes(targets[number]), *_list_predicted_boxes(predicted, number))
            for number in range(len(pictures))
        )
        return SamplePictures("detected", pixel_levels(pictures), (), boxes)


def _list_true_boxes(target_rows: HostArray) -> Iterator[PictureBox]:
    for class_number, *corners in target_rows.tolist():
        if class_number >= 0:
            yield PictureBox(int(class_number), None, *corners)


def _list_predicted_boxes(predicted: PredictedBoxes, picture: int) -> Iterator[PictureBox]:
    is_shown = predicted.is_kept[picture] & (predicted.scores[picture] >= MIN_SAMPLE_SCORE)
    for index in np.flatnonzero(is_shown).tolist():
        class_number, score = int(predicted.classes[picture, index]), float(predicted.scores[picture, index])
        yield PictureBox(class_number, score, *predicted.boxes[picture, index].tolist())


@dataclass(frozen=True)
class DetectionHeads(CompositeLayer):
    """Two heads, for classes and boxes, each shared by all levels of a pyramid: (F, P, B) → (B, A, C + 4).

    A place has some anchors; each has C class scores and 4 offsets of a box. See the objective `Detection`.
    """

    features: int
    classes: int
    sides: tuple[int, ...]  # in pixels, by level

    @property
    def parts(self) -> tuple[Layer, ...]:
        return self._class_head, self._box_head

    @cached_property
    def _class_head(self) -> Layer:
        return self._build_head("class", self.classes)

    @cached_property
    def _box_head(self) -> Layer:
        return self._build_head("box", BOX_ENTRIES)

    def _build_head(self, name: str, entries: int) -> Layer:
        hidden = _convolution(f"{name}.hidden", self.features, self.features)
        outputs = DEFAULT_ANCHORS.anchors_per_cell * entries
        output = Conv2d(f"{name}.output", self.features, outputs, 3, _output_variance, padding=1)
        return LevelSharedLayer(Chain((hidden, Relu(), output)), self.sides)

    def init_arrays(self, rng: np.random.Generator) -> dict[str, HostArray]:
        """Return initial arrays with which each class has a small probability at each anchor.

        Otherwise the loss of the many anchors of the background would dominate the first steps.
        """
        arrays = super().init_arrays(rng)
        arrays["class.output.bias"] = np.full_like(arrays["class.output.bias"], PRIOR_BIAS)
        return arrays

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:
        scores, class_backward = self._class_head.forward(arrays, x, context)
        offsets, box_backward = self._box_head.forward(arrays, x, context)

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:
            score_grad, offset_grad = output_grad[..., : self.classes], output_grad[..., self.classes :]
            box_grad = yield from box_backward(_join_anchors(offset_grad), needs_input_grad=needs_input_grad)
            class_grad = yield from class_backward(_join_anchors(score_grad), needs_input_grad=needs_input_grad)
            return None if class_grad is None or box_grad is None else class_grad + box_grad

        xp = array_namespace(x)
        return xp.concatenate([_split_anchors(scores), _split_anchors(offsets)], axis=-1), backward

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        (class_outputs, cell_count), class_flops = self._class_head.measure_cost(input_shape)
        _, box_flops = self._box_head.measure_cost(input_shape)
        anchors_per_cell = class_outputs // self.classes
        return LayerCost((cell_count * anchors_per_cell, self.classes + BOX_ENTRIES), class_flops | box_flops)


def _split_anchors(cells: Array) -> Array:
    """Return one row per anchor: (K·E, P, B) → (B, P·K, E), with K anchors per cell and E entries per anchor."""
    rows, cell_count, samples = cells.shape
    anchors_per_cell = DEFAULT_ANCHORS.anchors_per_cell
    anchors = cells.reshape(anchors_per_cell, rows // anchors_per_cell, cell_count, samples)
    return anchors.transpose(3, 2, 0, 1).reshape(samples, cell_count * anchors_per_cell, rows // anchors_per_cell)


def _join_anchors(rows: Array) -> Array:
    """Return the features of each cell: the inverse of `_split_anchors`."""
    samples, anchor_count, entries = rows.shape
    anchors_per_cell = DEFAULT_ANCHORS.anchors_per_cell
    cell_count = anchor_count // anchors_per_cell
    anchors = rows.reshape(samples, cell_count, anchors_per_cell, entries)
    return anchors.transpose(2, 3, 1, 0).reshape(anchors_per_cell * entries, cell_count, samples)


def _output_variance(fan_in: int, fan_out: int) -> float:  # noqa: ARG001 - the signature of all rules
    """Return the variance of the weights of the last layer of a head: they are small, so that the biases decide."""
    return OUTPUT_DEVIATION**2


def _convolution(name: str, channels: int, outputs: int, stride: int = 1) -> Conv2d:
    return Conv2d(name, channels, outputs, 3, he_variance, stride=stride, padding=1)


def _norm(name: str, channels: int) -> GroupNorm:
    return GroupNorm(name, channels, groups=channels // CHANNELS_PER_GROUP)


def _residual_block(name: str, channels: int, outputs: int) -> Layer:
    """Return a residual block that halves the resolution, with a projection as its shortcut (K. He et al., 2016)."""
    main = (
        *(_convolution(f"{name}.conv1", channels, outputs, stride=2), _norm(f"{name}.norm1", outputs), Relu()),
        *(_convolution(f"{name}.conv2", outputs, outputs), _norm(f"{name}.norm2", outputs)),
    )
    shortcut = Conv2d(f"{name}.shortcut", channels, outputs, 1, stride=2)
    return Chain((Residual(Chain(main), shortcut), Relu()))
