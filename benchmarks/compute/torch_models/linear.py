"""Linear model in PyTorch."""

from math import prod

from torch import nn

from services.learning.datasets import LearningTask
from services.learning.models import LinearModel


def build_module(model: LinearModel, learning_task: LearningTask) -> nn.Module:  # noqa: ARG001 - it has no keys
    """Return the module: one dense layer on the flattened sample."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(learning_task.inputs), learning_task.outputs))
