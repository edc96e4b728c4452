"""Boxes: their intersection over union (IoU), and their encoding as offsets from anchors.

A box is (left, top, right, bottom) in pixels, on the last axis of an array.
"""

from math import log

from services.schema.arrays import Array, array_namespace

BOX_ENTRIES = 4  # left, top, right, bottom; or the offsets of a box
MAX_LOG_SCALE = log(1000 / 16)  # limit of a predicted log scale, as in Detectron: exp cannot overflow


def compute_iou(boxes: Array, other_boxes: Array) -> Array:
    """Return the intersection over union (IoU) of all pairs of boxes.

    Shapes: (..., N, 4) and (..., M, 4) → (..., N, M). The IoU of a box without area is 0.
    """
    xp = array_namespace(boxes)
    first, second = boxes[..., :, None, :], other_boxes[..., None, :, :]
    widths_heights = xp.minimum(first[..., 2:], second[..., 2:]) - xp.maximum(first[..., :2], second[..., :2])
    widths_heights = widths_heights.clip(0)
    intersection = widths_heights[..., 0] * widths_heights[..., 1]
    union = _area(first) + _area(second) - intersection
    return intersection / xp.where(union > 0, union, 1)


def encode_boxes(boxes: Array, anchors: Array) -> Array:
    """Return boxes as offsets from their anchors, of the same shape (..., 4).

    Offsets are the shift of the centre in anchor sides, and the logarithm of the scale: R. Girshick et al., "Rich
    feature hierarchies", CVPR 2014, appendix C.
    """
    xp = array_namespace(boxes)
    size, anchor_size = boxes[..., 2:] - boxes[..., :2], anchors[..., 2:] - anchors[..., :2]
    shift = (boxes[..., 2:] + boxes[..., :2] - anchors[..., 2:] - anchors[..., :2]) / (2 * anchor_size)
    return xp.concatenate([shift, xp.log(size / anchor_size)], axis=-1)


def decode_boxes(offsets: Array, anchors: Array) -> Array:
    """Return the boxes with these offsets from their anchors: the inverse of `encode_boxes`."""
    xp = array_namespace(offsets)
    anchor_size = anchors[..., 2:] - anchors[..., :2]
    centre = (anchors[..., 2:] + anchors[..., :2]) / 2 + offsets[..., :2] * anchor_size
    half_size = xp.exp(offsets[..., 2:].clip(None, MAX_LOG_SCALE)) * anchor_size / 2
    return xp.concatenate([centre - half_size, centre + half_size], axis=-1)


def _area(boxes: Array) -> Array:
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])
