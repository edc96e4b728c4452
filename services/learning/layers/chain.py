"""Chain of layers, each of which takes the output of the previous one."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from services.learning.layers.base import (
    BackwardPass,
    CompositeLayer,
    GradientGenerator,
    Layer,
    LayerCost,
    ParameterArrays,
    PassContext,
)
from services.learning.layout import Shape
from services.schema.arrays import Array


@dataclass(frozen=True)
class Chain(CompositeLayer):
    """Chain of layers: the composition of their functions."""

    layers: tuple[Layer, ...]

    @property
    def parts(self) -> tuple[Layer, ...]:
        return self.layers

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:
        backward_passes: list[BackwardPass] = []
        for layer in self.layers:
            x, layer_backward = layer.forward(arrays, x, context)
            backward_passes.append(layer_backward)

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:
            grad: Array | None = output_grad
            for index in reversed(range(len(backward_passes))):
                layer_backward = backward_passes.pop()  # the memory of its inputs is freed afterwards
                is_grad_needed = needs_input_grad or index > self._first_trained_layer
                grad = yield from layer_backward(grad, needs_input_grad=is_grad_needed)
                if grad is None:
                    return None
            return grad if needs_input_grad else None

        return x, backward

    @cached_property
    def _first_trained_layer(self) -> int:
        """Number of the first layer with parameters; no gradient is needed below it."""
        return next((k for k, layer in enumerate(self.layers) if layer.parameter_shapes()), len(self.layers))

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        costs = list(self._measure_layer_costs(input_shape))
        flops = {name: count for cost in costs for name, count in cost.flops_by_array.items()}
        return LayerCost(costs[-1].output_shape if costs else input_shape, flops)

    def _measure_layer_costs(self, input_shape: Shape) -> Iterator[LayerCost]:
        for layer in self.layers:
            cost = layer.measure_cost(input_shape)
            yield cost
            input_shape = cost.output_shape
