"""Dense layers with a nonlinearity between them."""

from itertools import pairwise
from math import prod
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from services.learning.datasets.base import Task
from services.learning.models.layers import ACTIVATIONS, Dense, Layer, flat
from services.learning.models.sequential import Sequential
from services.schema.arrays import Array

Width: TypeAlias = Annotated[int, Field(gt=0)]  # outputs of a layer


class Mlp(Sequential):
    """Multilayer perceptron on the flattened sample."""

    kind: Literal["mlp"] = "mlp"
    hidden: tuple[Width, ...] = Field(default=(64,), min_length=1)
    activation: Literal["relu", "tanh"] = "relu"

    def layers(self, task: Task) -> dict[str, Layer]:
        activation, widths = ACTIVATIONS[self.activation], (prod(task.inputs), *self.hidden)
        layers: dict[str, Layer] = {}
        for number, (inputs, outputs) in enumerate(pairwise(widths), start=1):
            layers[f"dense{number}"] = Dense(inputs, outputs, activation.variance)
            layers[f"{self.activation}{number}"] = activation
        return {**layers, "output": Dense(widths[-1], task.outputs)}

    def prepare(self, x: Array) -> Array:
        return flat(x)
