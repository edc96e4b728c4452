"""Objectives of learning tasks: the loss that training minimises, and the quality metrics.

cross_entropy    classification: accuracy
mse              regression: r2, mae, mse

`OBJECTIVES` is the registry: a learning task names its objective by the name of the loss.
"""

from typing import Literal, TypeAlias

from services.learning.objectives.base import Objective, QualityMetric
from services.learning.objectives.classification import Classification
from services.learning.objectives.regression import Regression

LossName: TypeAlias = Literal["cross_entropy", "mse"]

OBJECTIVES: dict[LossName, Objective] = {"cross_entropy": Classification(), "mse": Regression()}

__all__ = ["OBJECTIVES", "LossName", "Objective", "QualityMetric"]
