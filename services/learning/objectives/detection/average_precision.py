"""Mean average precision of predicted boxes.

T.-Y. Lin et al., "Microsoft COCO", ECCV 2014, and pycocotools: at an IoU of 0.5, at 101 values of the recall.
"""

from services.learning.objectives.detection.boxes import compute_iou
from services.learning.objectives.detection.predictions import PredictedBoxes
from services.schema.arrays import Array, array_namespace

MIN_IOU = 0.5  # IoU; a prediction with less is a false positive
RECALL_STEPS = 100  # values of the recall are 0, 0.01, …, 1


def mean_average_precision(predictions: PredictedBoxes, targets: Array, class_count: int) -> float:
    """Return the mean over classes of the average precision, in [0, 1]; classes without objects do not count.

    The targets have the shape (B, M, 5) with rows (class, box); unused rows have class -1. Without any object, the
    result is 0.
    """
    is_true_positive = find_true_positives(predictions, targets)
    precisions = []
    for number in range(class_count):
        of_class = predictions.is_kept & (predictions.classes == number)
        object_count = int((targets[..., 0] == number).sum())
        if object_count:
            scores = predictions.scores[of_class]
            precisions.append(average_precision(scores, is_true_positive[of_class], object_count))
    return sum(precisions) / len(precisions) if precisions else 0.0


def find_true_positives(predictions: PredictedBoxes, targets: Array) -> Array:
    """Return which predictions are true positives, shape (B, K).

    In descending order of scores, a prediction is matched to the object of its class with the largest IoU among those
    that no prediction before it was matched to. It is a true positive if this IoU is at least 0.5.
    """
    xp = array_namespace(targets)
    is_same_class = predictions.classes[..., None] == targets[:, None, :, 0]
    iou = xp.where(is_same_class, compute_iou(predictions.boxes, targets[..., 1:]), 0)  # (B, K, M)
    is_unfound = xp.ones(targets.shape[:2], bool)
    is_true_positive = xp.zeros_like(predictions.is_kept)
    object_numbers = xp.arange(targets.shape[1])
    for number in range(iou.shape[1]):
        possible = xp.where(is_unfound, iou[:, number], 0)
        is_true_positive[:, number] = predictions.is_kept[:, number] & (possible.max(axis=1) >= MIN_IOU)
        is_unfound &= ~(is_true_positive[:, number, None] & (object_numbers == possible.argmax(axis=1)[:, None]))
    return is_true_positive


def average_precision(scores: Array, is_true_positive: Array, object_count: int) -> float:
    """Return the area under the precision-recall curve of one class.

    It is the mean, over 101 values of the recall, of the largest precision at that recall or more. Shapes: scores and
    is_true_positive (predictions of all images,).
    """
    xp = array_namespace(scores)
    if not len(scores):
        return 0.0
    true_positive_count = xp.cumsum(is_true_positive[xp.argsort(-scores, kind="stable")])
    precision = true_positive_count / xp.arange(1, len(scores) + 1)
    recall_values = xp.arange(RECALL_STEPS + 1)[:, None]
    is_reached = true_positive_count * RECALL_STEPS >= recall_values * object_count  # without rounding
    return float(xp.where(is_reached, precision, 0).max(axis=1).mean())
