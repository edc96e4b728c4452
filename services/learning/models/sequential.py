"""Models that are chains of layers: forward pass, loss, and backpropagation."""

from abc import abstractmethod
from itertools import islice

import numpy as np
import numpy.typing as npt

from services.learning.datasets.base import LearningTask
from services.learning.layout import ParameterLayout, flatten_arrays
from services.learning.models.base import Model
from services.learning.models.layers import Layer, LayerGradientFunctions
from services.learning.models.losses import LOSSES
from services.schema.arrays import Array, HostArray, Vector, array_namespace


class SequentialModel(Model):
    """A model that consists of a chain of layers."""

    @abstractmethod
    def build_layers(self, learning_task: LearningTask) -> dict[str, Layer]:
        """Return the layers by name, in the order of the forward pass; the first layer has weights."""

    @abstractmethod
    def prepare_input(self, x: Array) -> Array:
        """Return the samples in the form that the first layer expects.

        This conversion has no learned parameters, so no gradient passes through it.
        """

    def parameter_layout(self, learning_task: LearningTask) -> ParameterLayout:
        return ParameterLayout(
            arrays=tuple(
                (f"{layer_name}.{array_name}", shape)
                for layer_name, layer in self.build_layers(learning_task).items()
                for array_name, shape in layer.parameter_shapes().items()
            )
        )

    def init_parameters(self, learning_task: LearningTask, seed: int, dtype: npt.DTypeLike) -> HostArray:
        rng = np.random.Generator(np.random.PCG64(seed))
        arrays = [array for layer in self.build_layers(learning_task).values() for array in layer.init_arrays(rng)]
        return np.asarray(flatten_arrays(arrays), dtype)

    def loss_and_grad(self, learning_task: LearningTask, params: Vector, x: Array, y: Array) -> tuple[float, Vector]:
        if len(x) == 0:
            return 0.0, array_namespace(params).zeros_like(params)
        outputs, layer_backwards = self._forward_pass(learning_task, params, x)
        loss, output_grad = LOSSES[learning_task.loss](outputs, y)
        return float(loss), flatten_arrays(backpropagate(layer_backwards, output_grad))

    def predict_outputs(self, learning_task: LearningTask, params: Vector, x: Array) -> Array:
        outputs, _ = self._forward_pass(learning_task, params, x)
        return outputs

    def _forward_pass(self, task: LearningTask, params: Vector, x: Array) -> tuple[Array, list[LayerGradientFunctions]]:
        """Return the outputs of the model, and the backward pass of each layer.

        The outputs are those for the samples `x`; the backward passes are in the order of the layers.
        """
        arrays = iter(self.parameter_layout(task).unpack(params).values())
        x, layer_backwards = self.prepare_input(x), []
        for layer in self.build_layers(task).values():
            x, layer_backward = layer.forward(tuple(islice(arrays, len(layer.parameter_shapes()))), x)
            layer_backwards.append(layer_backward)
        return x, layer_backwards


def backpropagate(layer_backward_passes: list[LayerGradientFunctions], output_grad: Array) -> list[Array]:
    """Return the gradients of all layers' arrays, given the gradient of the last layer's output."""
    first, *later = layer_backward_passes
    grads: list[Array] = []
    for layer_backward in reversed(later):
        grads[:0], output_grad = layer_backward.parameter_grads(output_grad), layer_backward.input_grad(output_grad)
    return [*first.parameter_grads(output_grad), *grads]
