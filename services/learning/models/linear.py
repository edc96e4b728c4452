"""Linear model that consists of one dense layer.

It is linear regression, or multinomial logistic regression under the cross entropy.
"""

from math import prod
from typing import Literal

from services.learning.datasets.base import LearningTask
from services.learning.models.layers import Dense, Layer, flatten_samples
from services.learning.models.sequential import SequentialModel
from services.schema.arrays import Array


class LinearModel(SequentialModel):
    """Linear model: one dense layer on the flattened sample.

    Its loss is convex, so all strategies approach the same minimum.
    """

    kind: Literal["linear"] = "linear"

    def build_layers(self, learning_task: LearningTask) -> dict[str, Layer]:
        return {"dense": Dense(prod(learning_task.inputs), learning_task.outputs)}

    def prepare_input(self, x: Array) -> Array:
        return flatten_samples(x)
