"""Multilayer perceptron: dense layers with a nonlinearity between them."""

from itertools import pairwise
from math import prod
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from services.learning.datasets.base import LearningTask
from services.learning.layers.activations import ACTIVATIONS
from services.learning.layers.base import Layer
from services.learning.layers.chain import Chain
from services.learning.layers.dense import Dense
from services.learning.layers.images import FlattenSamples
from services.learning.models.network_model import NetworkModel

LayerWidth: TypeAlias = Annotated[int, Field(gt=0)]  # outputs of a layer


class Mlp(NetworkModel):
    """Multilayer perceptron on the flattened sample."""

    kind: Literal["mlp"] = "mlp"
    hidden: tuple[LayerWidth, ...] = Field(default=(64,), min_length=1, description="outputs of each hidden layer")
    activation: Literal["relu", "tanh"] = Field("relu", description="nonlinearity after each hidden layer")

    def build_network(self, learning_task: LearningTask) -> Layer:
        activation, widths = ACTIVATIONS[self.activation], (prod(learning_task.inputs), *self.hidden)
        layers: list[Layer] = [FlattenSamples()]
        for number, (inputs, outputs) in enumerate(pairwise(widths), start=1):
            layers += [Dense(f"dense{number}", inputs, outputs, activation.variance), activation]
        return Chain((*layers, Dense("output", widths[-1], learning_task.outputs)))
