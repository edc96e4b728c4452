"""One dense layer: linear regression, or multinomial logistic regression under the cross entropy."""

from math import prod
from typing import Literal

from services.learning.datasets.base import Task
from services.learning.models.layers import Dense, Layer, flat
from services.learning.models.sequential import Sequential
from services.schema.arrays import Array


class Linear(Sequential):
    """Outputs are linear in the flattened sample: the loss is convex, so every strategy has one truth to find."""

    kind: Literal["linear"] = "linear"

    def layers(self, task: Task) -> dict[str, Layer]:
        return {"dense": Dense(prod(task.inputs), task.outputs)}

    def prepare(self, x: Array) -> Array:
        return flat(x)
