"""LeNet-5, the classic small convolutional network.

Y. LeCun et al., "Gradient-based learning applied to document recognition", Proc. IEEE 86(11), 1998, section II-B.
We differ as most implementations do today: subsampling has no coefficients, the second convolution sees all six maps,
and the output is a dense layer under a softmax. With images of one channel enlarged to 32x32 and ten classes it has the
customary 61,706 parameters.
"""

from typing import Literal

from pydantic import Field

from services.learning.datasets.base import LearningTask
from services.learning.models.layers import ACTIVATIONS, AveragePool, Conv2d, Dense, Flatten, Layer, upsample
from services.learning.models.sequential import SequentialModel
from services.schema.arrays import Array, array_namespace

KERNEL_SIDE = 5
IMAGE_AXES = 3  # channels, rows, columns


class LeNet5(SequentialModel):
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
        required = f"lenet5 needs square images of at most {self.input_side} pixels a side"
        return None if is_image else f"{required}; a sample of this dataset has shape {inputs}"

    def build_layers(self, learning_task: LearningTask) -> dict[str, Layer]:
        activation, (channels, _, _) = ACTIVATIONS[self.activation], learning_task.inputs
        side_after_pool1 = (self.input_side - KERNEL_SIDE + 1) // 2
        side_after_pool2 = (side_after_pool1 - KERNEL_SIDE + 1) // 2
        return {
            "conv1": Conv2d(channels, 6, KERNEL_SIDE, self.input_side, activation.variance),
            "activation1": activation,
            "pool1": AveragePool(),
            "conv2": Conv2d(6, 16, KERNEL_SIDE, side_after_pool1, activation.variance),
            "activation2": activation,
            "pool2": AveragePool(),
            "flatten": Flatten(),
            "dense1": Dense(16 * side_after_pool2**2, 120, activation.variance),
            "activation3": activation,
            "dense2": Dense(120, 84, activation.variance),
            "activation4": activation,
            "output": Dense(84, learning_task.outputs),
        }

    def prepare_input(self, x: Array) -> Array:
        images = upsample(x.transpose(1, 2, 3, 0), self.input_side // x.shape[-1])
        padding, extra = divmod(self.input_side - images.shape[1], 2)
        return array_namespace(x).pad(images, ((0, 0), *[(padding, padding + extra)] * 2, (0, 0)))
