"""ResNet for small images in PyTorch."""

from collections.abc import Iterator
from math import gcd

from torch import Tensor, nn
from torch.nn.functional import relu

from services.learning.datasets import LearningTask
from services.learning.models import ResNet


class TorchResidualBlock(nn.Module):
    """Residual block of two convolutions, with a projection where it changes the shape."""

    def __init__(self, channels: int, outputs: int, norm: str) -> None:
        super().__init__()
        stride = outputs // channels
        self.main = nn.Sequential(
            *(conv(channels, outputs, 3, stride), create_norm(norm, outputs), nn.ReLU()),
            *(conv(outputs, outputs, 3), create_norm(norm, outputs)),
        )
        projection = (conv(channels, outputs, 1, stride), create_norm(norm, outputs))
        self.shortcut = nn.Sequential(*(projection if stride > 1 else ()))

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the block."""
        return relu(self.main(x) + self.shortcut(x))


def build_module(model: ResNet, learning_task: LearningTask) -> nn.Module:
    """Return the module: a convolution, three stages of blocks, pooling and a dense layer."""
    return nn.Sequential(
        *(conv(learning_task.inputs[0], model.width, 3), create_norm(model.norm, model.width), nn.ReLU()),
        *residual_blocks(model),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * model.width, learning_task.outputs)),
    )


def residual_blocks(model: ResNet) -> Iterator[nn.Module]:
    """Yield the blocks of the three stages."""
    channels = model.width
    for outputs in (model.width, 2 * model.width, 4 * model.width):
        for _ in range((model.depth - 2) // 6):
            yield TorchResidualBlock(channels, outputs, model.norm)
            channels = outputs


def conv(channels: int, outputs: int, kernel: int, stride: int = 1) -> nn.Module:
    """Return a convolution without a bias that keeps the size of images, except for the stride."""
    return nn.Conv2d(channels, outputs, kernel, stride, padding=kernel // 2, bias=False)


def create_norm(norm: str, channels: int) -> nn.Module:
    """Return the normalisation of the model's key `norm`."""
    return nn.BatchNorm2d(channels) if norm == "batch" else nn.GroupNorm(gcd(8, channels), channels)
