"""LeNet-5, the classic small convolutional network.

Y. LeCun et al., "Gradient-based learning applied to document recognition", Proc. IEEE 86(11), 1998, section II-B.
We differ as most implementations do today: subsampling has no coefficients, the second convolution sees all six maps,
and the output is a dense layer under a softmax. With images of one channel enlarged to 32x32 and ten classes it has the
customary 61,706 parameters.
"""

from typing import Literal

from pydantic import Field

from services.learning.datasets.base import LearningTask
from services.learning.layers.activations import ACTIVATIONS
from services.learning.layers.base import Layer
from services.learning.layers.chain import Chain
from services.learning.layers.convolution import Conv2d
from services.learning.layers.dense import Dense
from services.learning.layers.images import FitToSquare, Flatten, MoveSampleAxisLast
from services.learning.layers.pooling import AveragePool
from services.learning.models.network_model import NetworkModel

KERNEL_SIDE = 5
IMAGE_AXES = 3  # channels, rows, columns


class LeNet5(NetworkModel):
    """LeNet-5 for square images: two convolutions, each with pooling, and three dense layers.

    The chain is conv 6 - pool - conv 16 - pool - dense 120 - dense 84 - dense, with kernels of 5x5. An image is
    enlarged by the largest integer factor that fits into `input_side` and padded with zeros: 8x8 becomes 32x32 by a
    factor of 4, 28x28 by a border of two pixels.
    """

    kind: Literal["lenet5"] = "lenet5"
    activation: Literal["relu", "tanh"] = Field("relu", description="nonlinearity between the layers")
    input_side: int = Field(
        default=32, ge=16, multiple_of=4, description="side of the network's input in pixels; both poolings halve it"
    )

    def unsupported_task_reason(self, learning_task: LearningTask) -> str | None:
        inputs = learning_task.inputs
        is_image = len(inputs) == IMAGE_AXES and inputs[1] == inputs[2] <= self.input_side
        if is_image:
            return None
        return (
            f"lenet5 needs square images of at most {self.input_side} pixels a side (input_side); a sample of this "
            f"dataset has shape {inputs}; use a dataset of such images, or another model, for example mlp"
        )

    def build_network(self, learning_task: LearningTask) -> Layer:
        activation, (channels, _, _) = ACTIVATIONS[self.activation], learning_task.inputs
        side_after_pool1 = (self.input_side - KERNEL_SIDE + 1) // 2
        side_after_pool2 = (side_after_pool1 - KERNEL_SIDE + 1) // 2
        images_to_rows = (
            MoveSampleAxisLast(),
            FitToSquare(self.input_side),
            *(Conv2d("conv1", channels, 6, KERNEL_SIDE, activation.variance), activation, AveragePool()),
            *(Conv2d("conv2", 6, 16, KERNEL_SIDE, activation.variance), activation, AveragePool()),
            Flatten(),
        )
        rows_to_scores = (
            *(Dense("dense1", 16 * side_after_pool2**2, 120, activation.variance), activation),
            *(Dense("dense2", 120, 84, activation.variance), activation),
            Dense("output", 84, learning_task.outputs),
        )
        return Chain((*images_to_rows, *rows_to_scores))
