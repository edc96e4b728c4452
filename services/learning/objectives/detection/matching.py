"""Assignment of anchors to true boxes, by overlap."""

from typing import NamedTuple

from services.learning.objectives.detection.boxes import overlap_ratio
from services.schema.arrays import Array, array_namespace

MIN_OBJECT_OVERLAP = 0.5  # an anchor with at least this overlap stands for the object
MAX_BACKGROUND_OVERLAP = 0.4  # an anchor with less stands for the background; in between it is ignored


class AnchorMatches(NamedTuple):
    """What each anchor of each image stands for. Shapes: (B, A)."""

    object_number: Array  # row of the targets with the largest overlap
    is_object: Array  # the anchor stands for this object
    is_background: Array  # the anchor stands for no object


def match_anchors(anchors: Array, targets: Array) -> AnchorMatches:
    """Return what each anchor stands for, given the targets of a batch of images.

    Shapes: anchors (A, 4), targets (B, M, 5) with rows (class, box); rows of class -1 are unused. The anchors with the
    largest overlap of an object stand for it even below the limit, so that no object lacks an anchor: S. Ren et al.,
    "Faster R-CNN", section 3.1.2.
    """
    xp, is_used = array_namespace(targets), targets[..., 0] >= 0
    overlap = xp.where(is_used[:, None], overlap_ratio(anchors[None], targets[..., 1:]), -1)  # (B, A, M)
    largest, largest_of_object = overlap.max(axis=2), overlap.max(axis=1, keepdims=True)
    is_best_of_object = ((overlap == largest_of_object) & (overlap > 0)).any(axis=2)
    is_object = (largest >= MIN_OBJECT_OVERLAP) | is_best_of_object
    return AnchorMatches(overlap.argmax(axis=2), is_object, ~is_object & (largest < MAX_BACKGROUND_OVERLAP))
