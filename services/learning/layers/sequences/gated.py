"""Gated feed-forward layer."""

from dataclasses import dataclass

from services.learning.layers.activations import Silu
from services.learning.layers.base import (
    BackwardPass,
    CompositeLayer,
    GradientGenerator,
    Layer,
    LayerCost,
    ParameterArrays,
    PassContext,
    sum_input_grads,
)
from services.learning.layout import Shape
from services.schema.arrays import Array

SILU = Silu()


@dataclass(frozen=True)
class SwiGlu(CompositeLayer):
    """Gated feed-forward layer: y = down(silu(gate(x)) · up(x)).

    The three projections are layers, usually dense ones without bias. N. Shazeer, "GLU variants improve transformer",
    2020.
    """

    gate: Layer
    up: Layer
    down: Layer

    @property
    def parts(self) -> tuple[Layer, ...]:
        return self.gate, self.up, self.down

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:
        gate, gate_backward = self.gate.forward(arrays, x, context)
        up, up_backward = self.up.forward(arrays, x, context)
        activated, activation_grad = SILU.forward_with_grad_function(gate, context)
        y, down_backward = self.down.forward(arrays, activated * up, context)

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:
            product_grad = yield from down_backward(output_grad, needs_input_grad=True)
            from_up = yield from up_backward(product_grad * activated, needs_input_grad=needs_input_grad)
            gate_grad = activation_grad(product_grad * up)
            from_gate = yield from gate_backward(gate_grad, needs_input_grad=needs_input_grad)
            return sum_input_grads(from_gate, from_up)

        return y, backward

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        gate, up = self.gate.measure_cost(input_shape), self.up.measure_cost(input_shape)
        down = self.down.measure_cost(gate.output_shape)
        return LayerCost(down.output_shape, gate.flops_by_array | up.flops_by_array | down.flops_by_array)
