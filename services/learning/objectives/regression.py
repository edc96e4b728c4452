"""Regression: mean squared error, mean absolute error and r2."""

from typing import ClassVar

from services.learning.objectives.base import Objective, QualityMetric
from services.schema.arrays import Array, array_namespace


class Regression(Objective):
    """Regression of one or more values per sample.

    Shapes: outputs and targets (B, O).
    """

    metrics: ClassVar = {
        "r2": QualityMetric("at_least", 1.0),
        "mae": QualityMetric("at_most", 0.0),
        "mse": QualityMetric("at_most", 0.0),
    }

    def loss_and_output_grad(self, outputs: Array, targets: Array) -> tuple[Array, Array]:
        """Return the mean squared error of outputs, and its gradient.

        The mean of (output - target)² is over B samples and O outputs.
        """
        error = outputs - targets
        return (error**2).mean(), error * (2 / error.size)

    def measure_quality(self, outputs: Array, targets: Array) -> dict[str, float]:
        """Return mean absolute error, mean squared error and r2, by metric name.

        r2 is the mean over outputs of 1 - residual / total sum of squares. An output whose targets are constant counts
        1 if it is predicted exactly, else 0.
        """
        xp, error = array_namespace(outputs), outputs - targets
        residual = (error**2).sum(axis=0)
        total = ((targets - targets.mean(axis=0)) ** 2).sum(axis=0)
        r2 = xp.where(total > 0, 1 - residual / xp.where(total > 0, total, 1), residual == 0)
        return {"mae": float(abs(error).mean()), "mse": float((error**2).mean()), "r2": float(r2.mean())}
