"""Residual blocks: the sum of two paths."""

from dataclasses import dataclass

from services.learning.layers.base import (
    BackwardPass,
    CompositeLayer,
    GradientGenerator,
    Layer,
    LayerCost,
    ParameterArrays,
    PassContext,
)
from services.learning.layers.chain import Chain
from services.learning.layout import Shape
from services.schema.arrays import Array

IDENTITY = Chain(())


@dataclass(frozen=True)
class Residual(CompositeLayer):
    """Residual block: y = main(x) + shortcut(x).

    Both paths give outputs of one shape. K. He et al., "Deep residual learning for image recognition", CVPR 2016.
    """

    main: Layer
    shortcut: Layer = IDENTITY

    @property
    def parts(self) -> tuple[Layer, ...]:
        return self.main, self.shortcut

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:
        main_output, main_backward = self.main.forward(arrays, x, context)
        shortcut_output, shortcut_backward = self.shortcut.forward(arrays, x, context)

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:
            shortcut_grad = yield from shortcut_backward(output_grad, needs_input_grad=needs_input_grad)
            main_grad = yield from main_backward(output_grad, needs_input_grad=needs_input_grad)
            return None if main_grad is None or shortcut_grad is None else main_grad + shortcut_grad

        return main_output + shortcut_output, backward

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        main, shortcut = self.main.measure_cost(input_shape), self.shortcut.measure_cost(input_shape)
        return LayerCost(main.output_shape, main.flops_by_array | shortcut.flops_by_array)
