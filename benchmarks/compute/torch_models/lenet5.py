"""LeNet-5 in PyTorch."""

from torch import nn

from benchmarks.compute.torch_models.mlp import ACTIVATIONS
from services.learning.datasets import LearningTask
from services.learning.models import LeNet5


def build_module(model: LeNet5, learning_task: LearningTask) -> nn.Module:
    """Return the module; images are enlarged by an integer factor, then padded with zeros."""
    channels, side, _ = learning_task.inputs
    factor = model.input_side // side
    border, activation = model.input_side - factor * side, ACTIVATIONS[model.activation]
    sides = (border // 2, border - border // 2)
    side_after_pooling = ((model.input_side - 4) // 2 - 4) // 2
    return nn.Sequential(
        *(nn.Upsample(scale_factor=factor, mode="nearest"), nn.ZeroPad2d((*sides, *sides))),
        *(nn.Conv2d(channels, 6, 5), activation(), nn.AvgPool2d(2)),
        *(nn.Conv2d(6, 16, 5), activation(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(16 * side_after_pooling**2, 120), activation()),
        *(nn.Linear(120, 84), activation(), nn.Linear(84, learning_task.outputs)),
    )
