"""ResNet for small images: residual blocks in three stages.

K. He et al., "Deep residual learning for image recognition", CVPR 2016, section 4.2 (networks for CIFAR-10). We differ
in one point: where a block changes the shape, its shortcut is a projection (a convolution of 1x1 with normalisation,
option B of the paper) instead of the identity padded with zeros (option A). All other shortcuts are the identity. With
width 16, images of three channels and ten classes, depth 20 has 272,474 parameters, 2,752 more than with option A.
"""

from collections.abc import Iterator
from math import gcd
from typing import Literal

from pydantic import Field

from services.learning.datasets.base import LearningTask
from services.learning.layers.activations import Relu
from services.learning.layers.base import Layer
from services.learning.layers.chain import Chain
from services.learning.layers.convolution import Conv2d
from services.learning.layers.dense import Dense
from services.learning.layers.images import MoveSampleAxisLast
from services.learning.layers.initialisation import he_variance
from services.learning.layers.normalisation import BatchNorm2d, GroupNorm
from services.learning.layers.pooling import GlobalAveragePool
from services.learning.layers.residual import IDENTITY, Residual
from services.learning.models.network_model import NetworkModel

IMAGE_AXES = 3  # channels, rows, columns
STAGES = 3
MAX_GROUPS = 8  # of channels, in group normalisation


class ResNet(NetworkModel):
    """ResNet for images of any size: a convolution, three stages of residual blocks, pooling, and a dense layer.

    A block is conv 3x3 - norm - relu - conv 3x3 - norm, added to its shortcut, and a relu. A network of depth 6n + 2
    has n blocks per stage. The second and the third stage halve the sides of the image and double the channels. The
    dense layer gets the mean of each channel.
    """

    kind: Literal["resnet"] = "resnet"
    depth: Literal[8, 20] = Field(default=8, description="convolutions and dense layers on the longest path")
    width: int = Field(
        default=16, gt=0, description="channels of the first stage; the others have 2 and 4 times as many"
    )
    norm: Literal["batch", "group"] = Field(
        default="batch",
        description="normalisation: over each worker's share of the batch, or over groups of channels of each image",
    )

    def unsupported_task_reason(self, learning_task: LearningTask) -> str | None:
        inputs = learning_task.inputs
        if len(inputs) == IMAGE_AXES:
            return None
        return (
            f"resnet needs images of the shape (channels, height, width); a sample of this dataset has shape {inputs}; "
            "use a dataset of images, or another model, for example mlp"
        )

    def explain_share_dependence(self) -> str:
        if self.norm != "batch":
            return ""
        return "model resnet with norm: batch normalises over a worker's share of the batch; use norm: group"

    def build_network(self, learning_task: LearningTask) -> Layer:
        first = self._conv_and_norm("", 1, learning_task.inputs[0], self.width)
        classifier = Dense("output", self._stage_width(STAGES), learning_task.outputs)
        return Chain((MoveSampleAxisLast(), *first, Relu(), *self._blocks(), GlobalAveragePool(), classifier))

    def _blocks(self) -> Iterator[Layer]:
        channels = self.width
        for stage in range(1, STAGES + 1):
            outputs = self._stage_width(stage)
            for block in range(1, (self.depth - 2) // (2 * STAGES) + 1):
                yield from self._block(f"stage{stage}.block{block}.", channels, outputs)
                channels = outputs

    def _block(self, prefix: str, channels: int, outputs: int) -> tuple[Layer, Layer]:
        stride = outputs // channels
        main = (
            *(*self._conv_and_norm(prefix, 1, channels, outputs, stride), Relu()),
            *self._conv_and_norm(prefix, 2, outputs, outputs),
        )
        if stride == 1:
            return Residual(Chain(main), IDENTITY), Relu()
        projection = Conv2d(f"{prefix}shortcut.conv", channels, outputs, 1, he_variance, stride, has_bias=False)
        shortcut = Chain((projection, self._normalisation(f"{prefix}shortcut.norm", outputs)))
        return Residual(Chain(main), shortcut), Relu()

    def _conv_and_norm(
        self, prefix: str, number: int, channels: int, outputs: int, stride: int = 1
    ) -> tuple[Layer, Layer]:
        """Return a convolution of 3x3 without a bias, since the normalisation has one, and the normalisation."""
        name = f"{prefix}conv{number}"
        conv = Conv2d(name, channels, outputs, 3, he_variance, stride, padding=1, has_bias=False)
        return conv, self._normalisation(f"{prefix}norm{number}", outputs)

    def _normalisation(self, name: str, channels: int) -> Layer:
        if self.norm == "batch":
            return BatchNorm2d(name, channels)
        return GroupNorm(name, channels, groups=gcd(MAX_GROUPS, channels))

    def _stage_width(self, stage: int) -> int:
        return self.width << (stage - 1)
