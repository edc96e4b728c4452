"""U-Net that predicts the noise in images in PyTorch."""

from math import log

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, silu

from services.learning.datasets import LearningTask
from services.learning.models import DiffusionMini

CHANNELS_PER_GROUP = 4


class TorchNoisePredictor(nn.Module):
    """U-Net of two resolutions; its input has a plane with the diffusion step and a plane with the class."""

    def __init__(self, channels: int, classes: int, width: int) -> None:
        super().__init__()
        size = 4 * width
        self.channels, self.classes, self.width = channels, classes, width
        self.embedding = nn.Sequential(
            *(nn.Linear(width + classes, size), nn.SiLU()), *(nn.Linear(size, size), nn.SiLU())
        )
        self.entry = nn.Conv2d(channels, width, 3, padding=1)
        self.down = TorchConditionedBlock(width, width, size)
        self.downsample = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.middle = TorchConditionedBlock(2 * width, 2 * width, size)
        self.upsample = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(2 * width, width, 3, padding=1))
        self.up = TorchConditionedBlock(2 * width, width, size)
        self.exit = nn.Sequential(norm(width), nn.SiLU(), nn.Conv2d(width, channels, 3, padding=1))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the predicted noise, shape (B, channels, H, W)."""
        embedding = self.embedding(self.encode_conditions(inputs[:, self.channels :, 0, 0]))
        skipped = self.down(self.entry(inputs[:, : self.channels]), embedding)
        coarse = self.middle(self.downsample(skipped), embedding)
        joined = torch.cat([self.upsample(coarse), skipped], dim=1)
        noise: Tensor = self.exit(self.up(joined, embedding))
        return noise

    def encode_conditions(self, conditions: Tensor) -> Tensor:
        """Return sinusoids of the diffusion step, and a 1 at the class."""
        half = self.width // 2
        periods = torch.exp(-log(10_000) * torch.arange(half, dtype=conditions.dtype) / (half - 1))
        angles = conditions[:, :1] * periods
        classes = one_hot(conditions[:, 1].long(), self.classes)
        return torch.cat([angles.sin(), angles.cos(), classes.to(conditions.dtype)], dim=1)


class TorchConditionedBlock(nn.Module):
    """Residual block whose features are shifted by an embedding."""

    def __init__(self, channels: int, outputs: int, embedding_size: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = norm(channels), nn.Conv2d(channels, outputs, 3, padding=1)
        self.shift = nn.Linear(embedding_size, outputs)
        self.norm2, self.conv2 = norm(outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Identity() if channels == outputs else nn.Conv2d(channels, outputs, 1)

    def forward(self, features: Tensor, embedding: Tensor) -> Tensor:
        """Return the output of the block."""
        hidden = self.conv1(silu(self.norm1(features))) + self.shift(embedding)[:, :, None, None]
        output: Tensor = self.conv2(silu(self.norm2(hidden))) + self.shortcut(features)
        return output


def build_module(model: DiffusionMini, learning_task: LearningTask) -> nn.Module:
    """Return the module."""
    return TorchNoisePredictor(learning_task.inputs[0], learning_task.outputs, model.width)


def norm(channels: int) -> nn.Module:
    """Return the normalisation of the network."""
    return nn.GroupNorm(channels // CHANNELS_PER_GROUP, channels)
