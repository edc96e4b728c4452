"""Multilayer perceptron in PyTorch."""

from itertools import pairwise
from math import prod

from torch import nn

from services.learning.datasets import LearningTask
from services.learning.models import Mlp

ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh}


def build_module(model: Mlp, learning_task: LearningTask) -> nn.Module:
    """Return the module: dense layers with a nonlinearity between them."""
    widths = (prod(learning_task.inputs), *model.hidden)
    layers = [nn.Flatten()]
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), ACTIVATIONS[model.activation]()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], learning_task.outputs))
