"""RetinaNet with a small residual backbone in PyTorch."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, relu

from services.learning.datasets import LearningTask
from services.learning.models import RetinaNetMini
from services.learning.objectives.detection.anchors import DEFAULT_ANCHORS

CHANNELS_PER_GROUP = 8
BOX_ENTRIES = 4


class RetinaNet(nn.Module):
    """Feature pyramid, and heads for classes and boxes that all levels share."""

    def __init__(self, pyramid: nn.Module, class_head: nn.Module, box_head: nn.Module, classes: int) -> None:
        super().__init__()
        self.pyramid, self.class_head, self.box_head, self.classes = pyramid, class_head, box_head, classes

    def forward(self, images: Tensor) -> Tensor:
        """Return class scores and offsets of boxes, shape (B, anchors, classes + 4)."""
        features = self.pyramid(images)
        scores = anchor_rows(self.class_head(features), self.classes)
        return torch.cat([scores, anchor_rows(self.box_head(features), BOX_ENTRIES)], dim=2)


class TorchFeaturePyramid(nn.Module):
    """Feature pyramid of several levels: (B, C, H, W) → (B, F, pixels of all levels)."""

    def __init__(
        self, stages: Sequence[nn.Module], laterals: Sequence[nn.Module], smooths: Sequence[nn.Module]
    ) -> None:
        super().__init__()
        self.stages, self.laterals, self.smooths = map(nn.ModuleList, (stages, laterals, smooths))

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of all levels, the finest level first."""
        levels = []
        for stage, lateral in zip(self.stages, self.laterals, strict=True):
            x = stage(x)
            levels.append(lateral(x))
        for level in reversed(range(len(levels) - 1)):
            levels[level] = levels[level] + interpolate(levels[level + 1], scale_factor=2, mode="nearest")
        outputs = [smooth(level) for smooth, level in zip(self.smooths, levels, strict=True)]
        return torch.cat([output.flatten(2) for output in outputs], dim=2)


class TorchLevelSharedLayer(nn.Module):
    """One layer, applied to each level of a pyramid of square levels: (B, F, pixels) → (B, G, pixels)."""

    def __init__(self, layer: nn.Module, sides: Sequence[int]) -> None:
        super().__init__()
        self.layer, self.sides = layer, sides

    def forward(self, features: Tensor) -> Tensor:
        """Return the outputs of the layer for all levels."""
        parts = features.split([side**2 for side in self.sides], dim=2)
        levels = (part.unflatten(2, (side, side)) for part, side in zip(parts, self.sides, strict=True))
        return torch.cat([self.layer(level).flatten(2) for level in levels], dim=2)


class TorchDownsamplingBlock(nn.Module):
    """Residual block that halves the resolution, with a projection as its shortcut."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            *(nn.Conv2d(channels, outputs, 3, stride=2, padding=1), norm(outputs), nn.ReLU()),
            *(nn.Conv2d(outputs, outputs, 3, padding=1), norm(outputs)),
        )
        self.shortcut = nn.Conv2d(channels, outputs, 1, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the block."""
        return relu(self.main(x) + self.shortcut(x))


def build_module(model: RetinaNetMini, learning_task: LearningTask) -> nn.Module:
    """Return the module, with a pyramid of two levels."""
    (channels, side, _), width, features = learning_task.inputs, model.width, 2 * model.width
    stem = (nn.Conv2d(channels, width, 3, padding=1), norm(width), nn.ReLU())
    fine_stages = nn.Sequential(*stem, TorchDownsamplingBlock(width, width), TorchDownsamplingBlock(width, 2 * width))
    pyramid = TorchFeaturePyramid(
        stages=(fine_stages, TorchDownsamplingBlock(2 * width, 4 * width)),
        laterals=(nn.Conv2d(2 * width, features, 1), nn.Conv2d(4 * width, features, 1)),
        smooths=[nn.Conv2d(features, features, 3, padding=1) for _ in range(2)],
    )
    classes, sides = learning_task.outputs, DEFAULT_ANCHORS.level_sides(side)
    class_head, box_head = (
        TorchLevelSharedLayer(head(features, DEFAULT_ANCHORS.anchors_per_cell * entries), sides)
        for entries in (classes, BOX_ENTRIES)
    )
    return RetinaNet(pyramid, class_head, box_head, classes)


def head(features: int, outputs: int) -> nn.Module:
    """Return a head with one hidden convolution."""
    hidden = nn.Conv2d(features, features, 3, padding=1)
    return nn.Sequential(hidden, nn.ReLU(), nn.Conv2d(features, outputs, 3, padding=1))


def norm(channels: int) -> nn.Module:
    """Return the normalisation of the backbone."""
    return nn.GroupNorm(channels // CHANNELS_PER_GROUP, channels)


def anchor_rows(outputs: Tensor, entries: int) -> Tensor:
    """Return one row per anchor: (B, K·entries, pixels) → (B, pixels·K, entries)."""
    return outputs.permute(0, 2, 1).reshape(len(outputs), -1, entries)
