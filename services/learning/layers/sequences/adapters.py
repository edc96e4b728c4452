"""Low-rank adapters: small trained changes of frozen weights."""

from dataclasses import dataclass
from math import prod

import numpy as np

from services.learning.layers.base import (
    ArrayGradient,
    BackwardPass,
    GradientGenerator,
    Layer,
    LayerCost,
    ParameterArrays,
    PassContext,
)
from services.learning.layers.dense import Dense
from services.learning.layout import Shape
from services.schema.arrays import Array, HostArray


@dataclass(frozen=True)
class LoraDense(Layer):
    """Dense layer with frozen weights and a low-rank adapter (LoRA): y = base(x) + alpha/rank · (x·a)·b.

    Shapes: x (B, …, I), a (I, rank), b (rank, O), y (B, …, O). b starts at zero, so the adapter changes nothing at
    first. E. J. Hu et al., "LoRA: Low-rank adaptation of large language models", 2021.
    """

    base: Dense  # with frozen arrays
    rank: int
    alpha: float

    @property
    def _names(self) -> tuple[str, str]:
        return f"{self.base.name}.lora_a", f"{self.base.name}.lora_b"

    def parameter_shapes(self) -> dict[str, Shape]:
        return dict(zip(self._names, ((self.base.inputs, self.rank), (self.rank, self.base.outputs)), strict=True))

    def init_arrays(self, rng: np.random.Generator) -> dict[str, HostArray]:
        a = rng.standard_normal((self.base.inputs, self.rank)) / np.sqrt(self.base.inputs)
        return dict(zip(self._names, (a, np.zeros((self.rank, self.base.outputs))), strict=True))

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:
        (a_name, b_name), scale = self._names, self.alpha / self.rank
        a, scaled_b = arrays[a_name], scale * arrays[b_name]
        rows = x.reshape(-1, self.base.inputs)
        reduced = rows @ a
        y, base_backward = self.base.forward(arrays, x, context)
        y += (reduced @ scaled_b).reshape(y.shape)

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:
            grad_rows = output_grad.reshape(-1, self.base.outputs)
            yield ArrayGradient(b_name, scale * (reduced.T @ grad_rows))
            reduced_grad = grad_rows @ scaled_b.T
            yield ArrayGradient(a_name, rows.T @ reduced_grad)
            grad = yield from base_backward(output_grad, needs_input_grad=needs_input_grad)
            if grad is not None:
                grad += (reduced_grad @ a.T).reshape(x.shape)
            return grad

        return y, backward

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        base, positions = self.base.measure_cost(input_shape), prod(input_shape[:-1])
        sizes = zip(self._names, (self.base.inputs, self.base.outputs), strict=True)
        return LayerCost(
            base.output_shape,
            base.flops_by_array | {name: 2.0 * positions * self.rank * size for name, size in sizes},
        )
