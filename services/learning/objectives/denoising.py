"""Denoising: mean squared error of the predicted noise."""

from typing import ClassVar

from services.learning.objectives.base import Objective, QualityMetric
from services.schema.arrays import Array


class Denoising(Objective):
    """Prediction of the noise in noisy images.

    Shapes: outputs and targets (B, C, H, W), the predicted noise and the noise. The noise has a variance of 1, so a
    model that predicts zeros has an error of 1. J. Ho et al., "Denoising Diffusion Probabilistic Models", NeurIPS 2020,
    eq. 14.
    """

    metrics: ClassVar = {"denoising_error": QualityMetric("at_most", 0.0)}

    def loss_and_output_grad(self, outputs: Array, targets: Array) -> tuple[Array, Array]:
        """Return the mean squared error over images and pixels, and its gradient."""
        error = outputs - targets
        return (error * error).mean(), error * (2 / error.size)

    def measure_quality(self, outputs: Array, targets: Array) -> dict[str, float]:
        """Return the mean squared error of the predicted noise."""
        return {"denoising_error": float(((outputs - targets) ** 2).mean())}
