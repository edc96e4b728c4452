"""Classification: cross entropy and accuracy."""

from typing import ClassVar

from services.learning.objectives.base import Objective, QualityMetric
from services.schema.arrays import Array, array_namespace


class Classification(Objective):
    """Classification of samples: outputs are class scores before the softmax, targets are class numbers.

    Shapes: scores (B, O), labels (B,).
    """

    metrics: ClassVar = {"accuracy": QualityMetric("at_least", 1.0)}

    def loss_and_output_grad(self, outputs: Array, targets: Array) -> tuple[Array, Array]:
        """Return the mean cross entropy of class scores, and its gradient.

        The cross entropy is -mean log softmax(scores)[label]. The largest score of each row is subtracted first: the
        softmax stays the same, and exp cannot overflow.
        """
        xp, samples = array_namespace(outputs), len(targets)
        label_entries = xp.arange(samples), targets
        shifted = outputs - outputs.max(axis=1, keepdims=True)
        log_softmax = shifted - xp.log(xp.exp(shifted).sum(axis=1, keepdims=True))
        grad = xp.exp(log_softmax)
        grad[label_entries] -= 1
        return -log_softmax[label_entries].sum() / samples, grad / samples

    def measure_quality(self, outputs: Array, targets: Array) -> dict[str, float]:
        return {"accuracy": float((outputs.argmax(axis=1) == targets).mean())}
