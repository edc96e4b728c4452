"""Multilayer perceptron: dense layers with a nonlinearity between them."""

from itertools import pairwise
from math import prod
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from services.learning.datasets.base import LearningTask
from services.learning.models.layers import ACTIVATIONS, Dense, Layer, flatten_samples
from services.learning.models.sequential import SequentialModel
from services.schema.arrays import Array

LayerWidth: TypeAlias = Annotated[int, Field(gt=0)]  # outputs of a layer


class Mlp(SequentialModel):
    """Multilayer perceptron on the flattened sample."""

    kind: Literal["mlp"] = "mlp"
    hidden: tuple[LayerWidth, ...] = Field(default=(64,), min_length=1, description="outputs of each hidden layer")
    activation: Literal["relu", "tanh"] = Field("relu", description="nonlinearity after each hidden layer")

    def build_layers(self, learning_task: LearningTask) -> dict[str, Layer]:
        activation, widths = ACTIVATIONS[self.activation], (prod(learning_task.inputs), *self.hidden)
        layers: dict[str, Layer] = {}
        for number, (inputs, outputs) in enumerate(pairwise(widths), start=1):
            layers[f"dense{number}"] = Dense(inputs, outputs, activation.variance)
            layers[f"{self.activation}{number}"] = activation
        return {**layers, "output": Dense(widths[-1], learning_task.outputs)}

    def prepare_input(self, x: Array) -> Array:
        return flatten_samples(x)
