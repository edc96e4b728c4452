"""Objective of object detection: focal loss of classes, smooth L1 loss of boxes, and mean average precision."""

from dataclasses import dataclass
from typing import ClassVar

from services.learning.objectives.base import Objective, QualityMetric
from services.learning.objectives.detection.anchors import anchor_boxes
from services.learning.objectives.detection.average_precision import mean_average_precision
from services.learning.objectives.detection.boxes import BOX_ENTRIES, encode_boxes
from services.learning.objectives.detection.matching import AnchorMatches, match_anchors
from services.learning.objectives.detection.predictions import predict_boxes
from services.schema.arrays import Array, array_namespace


@dataclass(frozen=True)
class Detection(Objective):
    """Detection of objects: each anchor has one score per class, and the offsets of a box.

    Shapes: outputs (B, A, C + 4), class scores before the sigmoid and then offsets, for the A anchors of
    `anchors.DEFAULT_ANCHORS`; targets (B, M, 5) with rows (class, left, top, right, bottom), unused rows have class -1.
    """

    metrics: ClassVar = {"map": QualityMetric("at_least", 1.0)}

    focal_alpha: float = 0.25  # weight of an object's own class; other classes weigh 1 - α
    focal_gamma: float = 2.0  # the loss of a well classified anchor falls with this power
    smooth_l1_beta: float = 1 / 9  # offsets closer than this have a squared loss, as in Detectron

    def loss_and_output_grad(self, outputs: Array, targets: Array) -> tuple[Array, Array]:
        """Return the mean loss over the images, and its gradient.

        The loss of an image is the sum of both losses over its anchors, divided by the number of anchors that stand for
        an object, at least one. Ignored anchors count in neither, anchors of the background only in the focal loss.
        T.-Y. Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017, section 4.1.
        """
        xp = array_namespace(outputs)
        anchors = xp.asarray(anchor_boxes(outputs.shape[1]), outputs.dtype)
        matches = match_anchors(anchors, targets)
        weights = 1 / (len(outputs) * matches.is_object.sum(axis=1).clip(1)).astype(outputs.dtype)
        scores, offsets = outputs[..., :-BOX_ENTRIES], outputs[..., -BOX_ENTRIES:]
        class_losses, score_grad = self._focal_loss(scores, targets, matches)
        box_losses, offset_grad = self._box_loss(offsets, targets, anchors, matches)
        grad = xp.concatenate([score_grad, offset_grad], axis=-1)
        return ((class_losses + box_losses) * weights).sum(), grad * weights[:, None, None]

    def measure_quality(self, outputs: Array, targets: Array) -> dict[str, float]:
        """Return the mean average precision `map` of the predicted boxes at an IoU of 0.5 (COCO's AP50)."""
        return {"map": mean_average_precision(predict_boxes(outputs), targets, outputs.shape[-1] - BOX_ENTRIES)}

    def _focal_loss(self, scores: Array, targets: Array, matches: AnchorMatches) -> tuple[Array, Array]:
        """Return the focal loss of each image (B,), and its gradient with respect to the scores (B, A, C).

        With p the probability that the sigmoid gives to the right answer, the loss of an entry is -α·(1-p)ᵍ·log p,
        where g is `focal_gamma`.
        """
        xp, gamma = array_namespace(scores), self.focal_gamma
        is_class = _is_class_of_anchor(targets, matches, scores.shape[-1])
        signed_scores = xp.where(is_class, scores, -scores)
        exp_negative = xp.exp(-abs(signed_scores))
        log_p = signed_scores.clip(None, 0) - xp.log1p(exp_negative)
        p = xp.exp(log_p)
        weight = xp.where(is_class, self.focal_alpha, 1 - self.focal_alpha).astype(scores.dtype)
        weight *= (matches.is_object | matches.is_background)[..., None]
        weight *= (1 - p) ** gamma
        grad = weight * (gamma * p * log_p - (1 - p))
        return -(weight * log_p).sum(axis=(1, 2)), xp.where(is_class, grad, -grad)

    def _box_loss(self, offsets: Array, targets: Array, anchors: Array, matches: AnchorMatches) -> tuple[Array, Array]:
        """Return the smooth L1 loss of each image (B,), and its gradient with respect to the offsets (B, A, 4).

        With the error e of an offset, the loss is e²/(2β) up to |e| = β, and |e| - β/2 above. R. Girshick, "Fast
        R-CNN", ICCV 2015.
        """
        xp, beta, is_object = array_namespace(offsets), self.smooth_l1_beta, matches.is_object[..., None]
        boxes = xp.take_along_axis(targets[..., 1:], matches.object_number[..., None], axis=1)
        error = xp.where(is_object, offsets - encode_boxes(xp.where(is_object, boxes, anchors), anchors), 0)
        size = abs(error)
        losses = xp.where(size < beta, error * error * (0.5 / beta), size - beta / 2)
        return losses.sum(axis=(1, 2)), (error / beta).clip(-1, 1)


def _is_class_of_anchor(targets: Array, matches: AnchorMatches, class_count: int) -> Array:
    """Return whether an anchor stands for an object of a class, shape (B, A, C)."""
    xp = array_namespace(targets)
    classes = xp.take_along_axis(targets[..., 0], matches.object_number, axis=1)
    return matches.is_object[..., None] & (classes[..., None] == xp.arange(class_count))
