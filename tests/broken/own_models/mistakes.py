"""Models with one mistake each."""

from typing import Any

import numpy as np
from good import Softmax


class RaisesInConstructor(Softmax):
    """The constructor raises an error."""

    def __init__(self, inputs: tuple[int, ...], outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.first = self.shapes["weights"]


class NoMethods:
    """A class that is no model."""

    def __init__(self, inputs: tuple[int, ...], outputs: int) -> None:
        pass

    def outputs(self, params: Any, x: Any) -> Any:
        return x


class AxesInPlaceOfShapes(Softmax):
    """Numbers of axes in place of shapes."""

    def parameter_shapes(self) -> Any:
        return {name: len(shape) for name, shape in self.shapes.items()}


class WrongShape(Softmax):
    """The gradient of the weight is transposed."""

    def loss_and_gradients(self, params: Any, x: Any, y: Any, rng: Any) -> Any:
        loss, gradients = super().loss_and_gradients(params, x, y, rng)
        return loss, gradients | {"weight": gradients["weight"].T}


class MissingGradient(Softmax):
    """The gradient of the bias is missing."""

    def loss_and_gradients(self, params: Any, x: Any, y: Any, rng: Any) -> Any:
        loss, gradients = super().loss_and_gradients(params, x, y, rng)
        return loss, {"weight": gradients["weight"]}


class WrongType(Softmax):
    """The gradient has 64 bits in place of 32."""

    def loss_and_gradients(self, params: Any, x: Any, y: Any, rng: Any) -> Any:
        loss, gradients = super().loss_and_gradients(params, x, y, rng)
        return loss, {name: gradient.astype(np.float64) for name, gradient in gradients.items()}


class InfiniteLoss(Softmax):
    """The loss is not a number."""

    def loss_and_gradients(self, params: Any, x: Any, y: Any, rng: Any) -> Any:
        return np.nan, super().loss_and_gradients(params, x, y, rng)[1]


class SumOfLosses(Softmax):
    """Loss and gradient are sums over the samples."""

    def loss_and_gradients(self, params: Any, x: Any, y: Any, rng: Any) -> Any:
        loss, gradients = super().loss_and_gradients(params, x, y, rng)
        return len(x) * loss, {name: len(x) * gradient for name, gradient in gradients.items()}


class WrongGradient(Softmax):
    """The gradient points uphill, twice as steep."""

    def loss_and_gradients(self, params: Any, x: Any, y: Any, rng: Any) -> Any:
        loss, gradients = super().loss_and_gradients(params, x, y, rng)
        return loss, gradients | {"weight": -2 * gradients["weight"]}


class LabelsAsOutputs(Softmax):
    """Outputs are labels in place of scores."""

    def outputs(self, params: Any, x: Any) -> Any:
        return super().outputs(params, x).argmax(axis=1)

    def loss_and_gradients(self, params: Any, x: Any, y: Any, rng: Any) -> Any:
        return Softmax(x.shape[1:], 10).loss_and_gradients(params, x, y, rng)


class ChangesParameters(Softmax):
    """The gradient step is done by the model."""

    def loss_and_gradients(self, params: Any, x: Any, y: Any, rng: Any) -> Any:
        loss, gradients = super().loss_and_gradients(params, x, y, rng)
        params["bias"] -= gradients["bias"]
        return loss, gradients


def make_model() -> Softmax:
    """Return a model; a function is no class."""
    return Softmax((64,), 10)


class SumOfLossesWithDropout(SumOfLosses):
    """Loss and gradient are sums over the samples, and each sample has another dropout mask."""

    def loss_and_gradients(self, params: Any, x: Any, y: Any, rng: Any) -> Any:
        mask = (rng.random(x.shape) < 0.75).astype(x.dtype)
        return super().loss_and_gradients(params, x * mask, y, rng)
