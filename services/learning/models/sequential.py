"""A network as a chain of layers: what its loss is, and how the gradient comes back."""

from abc import abstractmethod
from itertools import islice

import numpy as np
import numpy.typing as npt

from services.learning.datasets.base import Task
from services.learning.layout import Layout, concatenate
from services.learning.models.base import Model
from services.learning.models.layers import Backward, Layer
from services.learning.models.losses import LOSSES
from services.schema.arrays import Array, HostArray, Vector, namespace


class Sequential(Model):
    """A model that is told by its layers; everything else follows from them."""

    @abstractmethod
    def layers(self, task: Task) -> dict[str, Layer]:
        """The layers by name, in order; the first one has arrays."""

    @abstractmethod
    def prepare(self, x: Array) -> Array:
        """The samples as the first layer wants them; nothing in here is learned, so no gradient goes through."""

    def layout(self, task: Task) -> Layout:
        return Layout(
            arrays=tuple(
                (f"{name}.{array}", shape)
                for name, layer in self.layers(task).items()
                for array, shape in layer.shapes().items()
            )
        )

    def init(self, task: Task, seed: int, dtype: npt.DTypeLike) -> HostArray:
        rng = np.random.Generator(np.random.PCG64(seed))
        arrays = [array for layer in self.layers(task).values() for array in layer.init(rng)]
        return np.asarray(concatenate(arrays), dtype)

    def loss_and_grad(self, task: Task, params: Vector, x: Array, y: Array) -> tuple[float, Vector]:
        if len(x) == 0:
            return 0.0, namespace(params).zeros_like(params)
        outputs, way_back = self._forward(task, params, x)
        loss, dy = LOSSES[task.loss](outputs, y)
        return float(loss), concatenate(backward(way_back, dy))

    def predict(self, task: Task, params: Vector, x: Array) -> Array:
        outputs, _ = self._forward(task, params, x)
        return outputs

    def forward_flops(self, task: Task) -> int:
        return sum(layer.flops() for layer in self.layers(task).values())

    def _forward(self, task: Task, params: Vector, x: Array) -> tuple[Array, list[Backward]]:
        arrays = iter(self.layout(task).unpack(params).values())
        x, way_back = self.prepare(x), []
        for layer in self.layers(task).values():
            x, back = layer.forward(tuple(islice(arrays, len(layer.shapes()))), x)
            way_back.append(back)
        return x, way_back


def backward(way_back: list[Backward], dy: Array) -> list[Array]:
    """Gradients of all arrays in their order, from the gradient `dy` of the last layer's output."""
    first, *later = way_back
    grads: list[Array] = []
    for back in reversed(later):
        grads[:0], dy = back.to_arrays(dy), back.to_input(dy)
    return [*first.to_arrays(dy), *grads]
