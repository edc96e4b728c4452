"""Loss of object detection in PyTorch: focal loss of classes, and smooth L1 loss of boxes."""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot, smooth_l1_loss

from services.learning.objectives.detection.anchors import anchor_boxes

ALPHA, GAMMA, BETA = 0.25, 2.0, 1 / 9
MIN_OBJECT_IOU, MAX_BACKGROUND_IOU = 0.5, 0.4


def detection_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean over the images of focal loss and box loss, divided by the image's anchors of objects.

    Shapes: outputs (B, A, classes + 4), targets (B, M, 5) with rows (class, left, top, right, bottom).
    """
    anchors = torch.tensor(anchor_boxes(outputs.shape[1]), dtype=outputs.dtype)
    object_number, is_object, is_counted = match_anchors(anchors, targets)
    rows = targets.gather(1, object_number[..., None].expand(-1, -1, 5))
    scores, offsets = outputs[..., :-4], outputs[..., -4:]
    truth = one_hot(rows[..., 0].long().clamp(min=0), scores.shape[-1]) * is_object[..., None]
    focal_losses = focal_loss(scores, truth.to(scores.dtype)) * is_counted[..., None]
    true_offsets = encode_boxes(torch.where(is_object[..., None], rows[..., 1:], anchors), anchors)
    box_losses = smooth_l1_loss(offsets, true_offsets, beta=BETA, reduction="none") * is_object[..., None]
    image_losses = focal_losses.sum(dim=(1, 2)) + box_losses.sum(dim=(1, 2))
    return (image_losses / is_object.sum(dim=1).clamp(min=1)).mean()


def match_anchors(anchors: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the object of each anchor, whether the anchor stands for it, and whether the anchor is not ignored."""
    overlap = compute_iou(anchors[None], targets[..., 1:])
    overlap = torch.where(targets[:, None, :, 0] >= 0, overlap, -1.0)
    largest, object_number = overlap.max(dim=2)
    is_best = ((overlap == overlap.amax(dim=1, keepdim=True)) & (overlap > 0)).any(dim=2)
    is_object = (largest >= MIN_OBJECT_IOU) | is_best
    return object_number, is_object, is_object | (largest < MAX_BACKGROUND_IOU)


def compute_iou(boxes: Tensor, other_boxes: Tensor) -> Tensor:
    """Return the intersection over union of all pairs of boxes: (..., N, 4) and (..., M, 4) → (..., N, M)."""
    first, second = boxes[..., :, None, :], other_boxes[..., None, :, :]
    sides = torch.minimum(first[..., 2:], second[..., 2:]) - torch.maximum(first[..., :2], second[..., :2])
    common = sides.clamp(min=0).prod(dim=-1)
    union = (first[..., 2:] - first[..., :2]).prod(dim=-1) + (second[..., 2:] - second[..., :2]).prod(dim=-1) - common
    return common / torch.where(union > 0, union, 1.0)


def focal_loss(scores: Tensor, truth: Tensor) -> Tensor:
    """Return the focal loss of each entry."""
    cross_entropy = binary_cross_entropy_with_logits(scores, truth, reduction="none")
    probability = torch.exp(-cross_entropy)  # of the right answer
    alpha = ALPHA * truth + (1 - ALPHA) * (1 - truth)
    return alpha * (1 - probability) ** GAMMA * cross_entropy


def encode_boxes(boxes: Tensor, anchors: Tensor) -> Tensor:
    """Return boxes as offsets from their anchors."""
    size, anchor_size = boxes[..., 2:] - boxes[..., :2], anchors[..., 2:] - anchors[..., :2]
    shift = (boxes[..., 2:] + boxes[..., :2] - anchors[..., 2:] - anchors[..., :2]) / 2
    return torch.cat([shift / anchor_size, torch.log(size / anchor_size)], dim=-1)
