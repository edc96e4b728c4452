"""Dense layer: a matrix product of the last axis, and a bias."""

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
from services.learning.layers.initialisation import VarianceRule, glorot_variance
from services.learning.layout import Shape
from services.schema.arrays import Array, HostArray


@dataclass(frozen=True)
class Dense(Layer):
    """Dense layer: y = x·w + b, with input x, weights w, biases b and output y.

    The shapes are x (B, …, I), w (I, O), b (O,) and y (B, …, O).
    """

    name: str
    inputs: int
    outputs: int
    variance: VarianceRule = glorot_variance
    has_bias: bool = True
    is_frozen: bool = False  # then the arrays are given, and no part of the parameter vector

    def parameter_shapes(self) -> dict[str, Shape]:
        if self.is_frozen:
            return {}
        weight: dict[str, Shape] = {f"{self.name}.weight": (self.inputs, self.outputs)}
        return weight | ({f"{self.name}.bias": (self.outputs,)} if self.has_bias else {})

    def init_arrays(self, rng: np.random.Generator) -> dict[str, HostArray]:
        weight = rng.standard_normal((self.inputs, self.outputs)) * np.sqrt(self.variance(self.inputs, self.outputs))
        values = (weight, np.zeros(self.outputs))
        return dict(zip(self.parameter_shapes(), values, strict=False))

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:  # noqa: ARG002 - the same in training and evaluation
        weight = arrays[f"{self.name}.weight"]
        rows = x.reshape(-1, self.inputs)
        y = rows @ weight
        if self.has_bias:
            y += arrays[f"{self.name}.bias"]

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:
            grad_rows = output_grad.reshape(-1, self.outputs)
            if self.has_bias and not self.is_frozen:
                yield ArrayGradient(f"{self.name}.bias", grad_rows.sum(axis=0))
            if not self.is_frozen:
                yield ArrayGradient(f"{self.name}.weight", rows.T @ grad_rows)
            return (grad_rows @ weight.T).reshape(x.shape) if needs_input_grad else None

        return y.reshape(*x.shape[:-1], self.outputs), backward

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        flops = 2.0 * prod(input_shape) * self.outputs
        return LayerCost((*input_shape[:-1], self.outputs), {f"{self.name}.weight": flops})
