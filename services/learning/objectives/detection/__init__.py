"""Detection of objects in images: anchors, focal loss, suppression of double boxes, and mean average precision.

anchors              boxes of fixed size and place, to which a model's outputs belong
boxes                IoU of boxes, and boxes as offsets from anchors
matching             the true box of each anchor
objective            loss and metric
predictions          boxes that a model predicts
average_precision    the metric `map`
"""

from services.learning.objectives.detection.objective import Detection

__all__ = ["Detection"]
