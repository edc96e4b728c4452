"""Modules of PyTorch as users write them."""

from typing import Any

import torch
from torch import nn


class LeNet5(nn.Sequential):
    """LeNet-5 for grey images of 28 x 28 pixels: 61,706 parameters."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
        )


class Perceptron(nn.Sequential):
    """Perceptron for images of 28 x 28 pixels: 2,118,410 parameters."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU()),
            *(nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 10)),
        )


class ResidualBlock(nn.Module):
    """Two convolutions with batch normalisation, and a path around them."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels)
        self.around = nn.Sequential()
        if stride > 1:
            projection = nn.Conv2d(channels_in, channels, 1, stride, bias=False)
            self.around = nn.Sequential(projection, nn.BatchNorm2d(channels))

    def forward(self, x: Any) -> Any:
        """Return the activations of the block."""
        inner = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(inner)) + self.around(x))


class ResNet18(nn.Sequential):
    """ResNet-18 for colour images of 32 x 32 pixels, with half of the usual channels: 2,797,610 parameters."""

    def __init__(self) -> None:
        blocks = [
            ResidualBlock(32 * factor // (2 if number == 0 and factor > 1 else 1), 32 * factor, stride)
            for factor in (1, 2, 4, 8)
            for number, stride in enumerate((1 if factor == 1 else 2, 1))
        ]
        super().__init__(
            *(nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), *blocks),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10)),
        )
