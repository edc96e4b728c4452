"""Contract of the layers of a neural network: forward pass, backward pass, sizes and operations.

B samples · C channels · H, W sides of an image · I inputs, O outputs · T positions of a sequence · D features of each.
Rows of numbers are (B, I), sequences (B, T, D). Images are (C, H, W, B), samples last: then a convolution is one matrix
product for the whole batch, and every slice in it reads memory in order (twice as fast as samples first).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from services.learning.layout import Shape
from services.learning.randomness import DEFAULT_RANDOMNESS, BatchRandomness
from services.schema.arrays import Array, HostArray

ParameterArrays: TypeAlias = Mapping[str, Array]  # arrays of the whole network by full name, frozen ones included
MeanAndVariance: TypeAlias = tuple[Array, Array]


class ArrayGradient(NamedTuple):
    """Gradient of the loss with respect to one array of parameters."""

    array_name: str
    gradient: Array


# Yields the gradients of a layer's arrays, in the reverse order of the arrays, and returns the gradient of the layer's
# input; None unless the input's gradient is needed.
GradientGenerator: TypeAlias = Generator[ArrayGradient, None, Array | None]


class BackwardPass(Protocol):
    """Backward pass of a layer, as a function of the gradient of the layer's output."""

    def __call__(self, output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:
        """Yield the gradients of the layer's arrays, and return the gradient of the layer's input."""


class LayerCost(NamedTuple):
    """Output shape of a layer, and the floating-point operations of its forward pass, for one sample."""

    output_shape: Shape  # without the axis of samples
    # 2 per multiplication and addition in matrix products, by name of the array; others are not counted. Frozen arrays,
    # which are not in the parameter vector, count, too.
    flops_by_array: dict[str, float]


@dataclass
class PassContext:
    """Mode, random numbers and statistics of a forward pass, which it needs besides parameters and input.

    Layers such as dropout and batch normalisation compute differently in training and in evaluation.
    """

    is_training: bool = True
    randomness: BatchRandomness = DEFAULT_RANDOMNESS
    # Mean and variance that batch normalisation uses instead of those of the batch, by layer name.
    fixed_statistics: Mapping[str, MeanAndVariance] | None = None
    recorded_statistics: dict[str, MeanAndVariance] = field(default_factory=dict)  # of this batch, by layer name
    _generator: Any = None

    def random_generator(self, array: Array) -> Any:
        """Return the random generator of this pass; all layers draw from it, one after the other."""
        self._generator = self._generator or self.randomness.create_generator(array)
        return self._generator


class Layer(ABC):
    """Layer of a neural network: a differentiable function of a batch of inputs and of its arrays of parameters.

    A layer has no state. Its arrays have unique names in the whole network. A frozen layer reads given arrays that are
    not trained: they are no part of the parameter vector, and have no gradient.
    """

    @property
    def needs_calibration(self) -> bool:
        """Whether the layer needs statistics of training samples in evaluation, as batch normalisation does."""
        return False

    @abstractmethod
    def parameter_shapes(self) -> dict[str, Shape]:
        """Return full names and shapes of the layer's arrays, in the order of the parameter vector."""

    @abstractmethod
    def init_arrays(self, rng: np.random.Generator) -> dict[str, HostArray]:
        """Return the initial values of the layer's arrays, by name."""

    @abstractmethod
    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:
        """Return the output of the layer for the input `x`, and its backward pass."""

    @abstractmethod
    def measure_cost(self, input_shape: Shape) -> LayerCost:
        """Return output shape and operations of the layer for one sample of the shape `input_shape`."""


class CompositeLayer(Layer):
    """A layer that consists of other layers."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Layer, ...]:
        """The layers that this layer consists of, in the order of their arrays in the parameter vector."""

    @property
    def needs_calibration(self) -> bool:
        return any(layer.needs_calibration for layer in self.parts)

    def parameter_shapes(self) -> dict[str, Shape]:
        return {name: shape for layer in self.parts for name, shape in layer.parameter_shapes().items()}

    def init_arrays(self, rng: np.random.Generator) -> dict[str, HostArray]:
        return {name: array for layer in self.parts for name, array in layer.init_arrays(rng).items()}


class ParameterFreeLayer(Layer):
    """A layer without parameters."""

    def parameter_shapes(self) -> dict[str, Shape]:
        return {}

    def init_arrays(self, rng: np.random.Generator) -> dict[str, HostArray]:  # noqa: ARG002 - it has no arrays
        return {}

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:  # noqa: ARG002 - it has no arrays
        y, input_grad = self.forward_with_grad_function(x, context)
        return y, backward_without_parameters(input_grad)

    @abstractmethod
    def forward_with_grad_function(self, x: Array, context: PassContext) -> tuple[Array, Callable[[Array], Array]]:
        """Return the output of the layer, and the function that computes its gradient.

        The output is that for the input `x`; the function returns the input's gradient, given the output's gradient.
        """

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        """Return the output shape of this layer; by default, that of its input. It computes no matrix products."""
        return LayerCost(input_shape, {})


def backward_without_parameters(input_grad: Callable[[Array], Array]) -> BackwardPass:
    """Return the backward pass of a function without parameters, given the function for the input's gradient."""

    def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:
        yield from ()
        return input_grad(output_grad) if needs_input_grad else None

    return backward


def sum_input_grads(*gradients: Array | None) -> Array | None:
    """Return the gradient of an input that several layers read: the sum of theirs; None if none is needed."""
    needed = [gradient for gradient in gradients if gradient is not None]
    return reduce(add, needed) if needed else None
