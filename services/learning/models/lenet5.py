"""LeNet-5, the convolutional network that every teacher shows first.

Y. LeCun et al., "Gradient-based learning applied to document recognition", Proc. IEEE 86(11), 1998, section II-B.
We differ as most do today: subsampling has no coefficients, the second convolution sees all six maps, the output is a
dense layer under a softmax. With pictures of one channel brought to 32x32 and ten classes it has the customary 61,706
parameters.
"""

from typing import Literal

from pydantic import Field

from services.learning.datasets.base import Task
from services.learning.models.layers import ACTIVATIONS, AveragePool, Conv2d, Dense, Flatten, Layer, enlarged
from services.learning.models.sequential import Sequential
from services.schema.arrays import Array, namespace

KERNEL = 5
PICTURE_AXES = 3  # channels, rows, columns


class LeNet5(Sequential):
    """conv 6 - pool - conv 16 - pool - dense 120 - dense 84 - dense, kernels 5x5, for square pictures.

    A picture is enlarged by the largest whole factor that fits into `input_side` and framed by zeros:
    8x8 becomes 32x32 by a factor of 4, 28x28 by a frame two pixels wide.
    """

    kind: Literal["lenet5"] = "lenet5"
    activation: Literal["relu", "tanh"] = "relu"
    input_side: int = Field(default=32, ge=16, multiple_of=4)  # pixels; both poolings must divide evenly

    def refusal(self, task: Task) -> str | None:
        pictures = len(task.inputs) == PICTURE_AXES and task.inputs[1] == task.inputs[2] <= self.input_side
        needed = f"lenet5 needs square pictures of at most {self.input_side} pixels a side"
        return None if pictures else f"{needed}; a sample here has shape {task.inputs}"

    def layers(self, task: Task) -> dict[str, Layer]:
        activation, (channels, _, _) = ACTIVATIONS[self.activation], task.inputs
        half = (self.input_side - KERNEL + 1) // 2
        quarter = (half - KERNEL + 1) // 2
        return {
            "conv1": Conv2d(channels, 6, KERNEL, self.input_side, activation.variance),
            "activation1": activation,
            "pool1": AveragePool(),
            "conv2": Conv2d(6, 16, KERNEL, half, activation.variance),
            "activation2": activation,
            "pool2": AveragePool(),
            "flatten": Flatten(),
            "dense1": Dense(16 * quarter**2, 120, activation.variance),
            "activation3": activation,
            "dense2": Dense(120, 84, activation.variance),
            "activation4": activation,
            "output": Dense(84, task.outputs),
        }

    def prepare(self, x: Array) -> Array:
        pictures = enlarged(x.transpose(1, 2, 3, 0), self.input_side // x.shape[-1])
        before, odd = divmod(self.input_side - pictures.shape[1], 2)
        return namespace(x).pad(pictures, ((0, 0), *[(before, before + odd)] * 2, (0, 0)))
