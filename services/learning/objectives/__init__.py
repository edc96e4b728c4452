"""Objectives of learning tasks: the loss that training minimises, and the quality metrics.

cross_entropy    classification: accuracy
mse              regression: r2, mae, mse
detection        detection of objects in images: map
denoising        prediction of the noise in noisy images: denoising_error
next_token       prediction of each token from those before it: perplexity, accuracy
masked_token     prediction of masked tokens from those around them: perplexity, accuracy

`OBJECTIVES` is the registry: a learning task names its objective by the name of the loss.
"""

from typing import Literal, TypeAlias

from services.learning.objectives.base import Objective, QualityMetric
from services.learning.objectives.classification import Classification
from services.learning.objectives.denoising import Denoising
from services.learning.objectives.detection import Detection
from services.learning.objectives.regression import Regression
from services.learning.objectives.token_prediction import TokenPrediction

LossName: TypeAlias = Literal["cross_entropy", "mse", "detection", "denoising", "next_token", "masked_token"]

OBJECTIVES: dict[LossName, Objective] = {
    "cross_entropy": Classification(),
    "mse": Regression(),
    "detection": Detection(),
    "denoising": Denoising(),
    "next_token": TokenPrediction(),
    "masked_token": TokenPrediction(),
}

__all__ = ["OBJECTIVES", "LossName", "Objective", "QualityMetric"]
