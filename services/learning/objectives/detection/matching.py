"""Assignment of anchors to true boxes, by their intersection over union (IoU)."""

from typing import NamedTuple

from services.learning.objectives.detection.boxes import compute_iou
from services.schema.arrays import Array, array_namespace

MIN_OBJECT_IOU = 0.5  # IoU; an anchor with at least this IoU is matched to the object
MAX_BACKGROUND_IOU = 0.4  # IoU; an anchor with less is background; in between it is ignored


class AnchorMatches(NamedTuple):
    """Assignment of the anchors of each image to objects or to the background. Shapes: (B, A)."""

    object_number: Array  # row of the targets with the largest IoU
    is_object: Array  # the anchor stands for this object
    is_background: Array  # the anchor stands for no object


def match_anchors(anchors: Array, targets: Array) -> AnchorMatches:
    """Return what each anchor stands for, given the targets of a batch of images.

    Shapes: anchors (A, 4), targets (B, M, 5) with rows (class, box); rows of class -1 are unused. The anchors with the
    largest IoU with an object stand for it even below the limit, so that no object lacks an anchor: S. Ren et al.,
    "Faster R-CNN", section 3.1.2.
    """
    xp, is_used = array_namespace(targets), targets[..., 0] >= 0
    iou = xp.where(is_used[:, None], compute_iou(anchors[None], targets[..., 1:]), -1)  # (B, A, M)
    largest, largest_of_object = iou.max(axis=2), iou.max(axis=1, keepdims=True)
    is_best_of_object = ((iou == largest_of_object) & (iou > 0)).any(axis=2)
    is_object = (largest >= MIN_OBJECT_IOU) | is_best_of_object
    return AnchorMatches(iou.argmax(axis=2), is_object, ~is_object & (largest < MAX_BACKGROUND_IOU))
