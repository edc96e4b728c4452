"""Boxes that a detector predicts, after non-maximum suppression."""

from typing import NamedTuple

from services.learning.objectives.detection.anchors import anchor_boxes
from services.learning.objectives.detection.boxes import BOX_ENTRIES, compute_iou, decode_boxes
from services.schema.arrays import Array, array_namespace

MIN_SCORE = 0.05  # predictions with a lower probability are dropped
MAX_CANDIDATES = 64  # predictions per image before non-maximum suppression
MAX_KEPT_IOU = 0.5  # IoU of two boxes of one class above which the less probable one is suppressed


class PredictedBoxes(NamedTuple):
    """Predicted boxes of a batch of images, the most probable first. K boxes per image."""

    boxes: Array  # (B, K, 4): left, top, right, bottom in pixels
    classes: Array  # (B, K)
    scores: Array  # (B, K): probabilities
    is_kept: Array  # (B, K): whether the box is a prediction; others are padding


def predict_boxes(outputs: Array) -> PredictedBoxes:
    """Return the boxes that a detector's outputs predict, after non-maximum suppression per class.

    The outputs have the shape (B, A, C + 4), see `Detection`. An anchor may predict several classes.
    """
    xp, (_, anchor_count, width) = array_namespace(outputs), outputs.shape
    class_count = width - BOX_ENTRIES
    scores = outputs[..., :class_count].reshape(len(outputs), -1)
    ranked = xp.argsort(-scores, axis=1, kind="stable")[:, :MAX_CANDIDATES]
    anchor_numbers, classes = ranked // class_count, ranked % class_count
    probabilities = 1 / (1 + xp.exp(-xp.take_along_axis(scores, ranked, axis=1)))
    offsets = xp.take_along_axis(outputs[..., class_count:], anchor_numbers[..., None], axis=1)
    anchors = xp.asarray(anchor_boxes(anchor_count), outputs.dtype)
    boxes = decode_boxes(offsets, anchors[anchor_numbers])
    is_kept = non_maximum_suppression(boxes, classes, probabilities >= MIN_SCORE)
    return PredictedBoxes(boxes, classes, probabilities, is_kept)


def non_maximum_suppression(boxes: Array, classes: Array, is_candidate: Array) -> Array:
    """Return which boxes remain after non-maximum suppression per class (NMS), shape (B, K).

    Boxes (B, K, 4) are in descending order of their scores. A box is suppressed if its IoU with a remaining box of its
    class before it is above 0.5.
    """
    xp, is_kept = array_namespace(boxes), is_candidate.copy()
    is_double = compute_iou(boxes, boxes) > MAX_KEPT_IOU
    is_double &= classes[:, :, None] == classes[:, None, :]
    is_double = xp.triu(is_double, k=1)  # a box drops only boxes after it
    for number in range(boxes.shape[1]):
        is_kept &= ~(is_double[:, number] & is_kept[:, number, None])
    return is_kept
