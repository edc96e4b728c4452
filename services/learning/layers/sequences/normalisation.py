"""Normalisation of the features of each position.

Means over features are matrix products with a vector: a library sums short rows one by one, which is slower.
"""

from dataclasses import dataclass

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
from services.learning.layout import Shape
from services.schema.arrays import Array, HostArray, Vector, array_namespace

EPSILON = 1e-5  # added to variances, which may be zero


@dataclass(frozen=True)
class LayerNorm(Layer):
    """Layer normalisation: y = (x - mean) / √(variance + ε) · weight + bias.

    Mean and variance are over the D features of each position; the variance is the mean squared deviation. Shapes: x
    and y (B, …, D), weight and bias (D,). J. L. Ba et al., "Layer normalization", 2016.
    """

    name: str
    features: int

    def parameter_shapes(self) -> dict[str, Shape]:
        return {f"{self.name}.weight": (self.features,), f"{self.name}.bias": (self.features,)}

    def init_arrays(self, rng: np.random.Generator) -> dict[str, HostArray]:  # noqa: ARG002 - the start is not random
        return {f"{self.name}.weight": np.ones(self.features), f"{self.name}.bias": np.zeros(self.features)}

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:  # noqa: ARG002 - the same in training and evaluation
        weight, bias = arrays[f"{self.name}.weight"], arrays[f"{self.name}.bias"]
        rows = x.reshape(-1, self.features)
        normalised = rows - _mean_of_rows(rows)[:, None]
        inverse_deviations = _inverse_root(_mean_of_rows(normalised * normalised))
        normalised *= inverse_deviations[:, None]
        y = normalised * weight
        y += bias

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:
            grad_rows = output_grad.reshape(-1, self.features)
            products = grad_rows * normalised
            yield ArrayGradient(f"{self.name}.bias", grad_rows.sum(axis=0))
            yield ArrayGradient(f"{self.name}.weight", products.sum(axis=0))
            if not needs_input_grad:
                return None
            mean_weights = weight / self.features
            grad = grad_rows * weight
            grad -= (grad_rows @ mean_weights)[:, None]
            grad -= normalised * (products @ mean_weights)[:, None]
            grad *= inverse_deviations[:, None]
            return grad.reshape(x.shape)

        return y.reshape(x.shape), backward

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        return LayerCost(input_shape, {})


@dataclass(frozen=True)
class RmsNorm(Layer):
    """Root mean square normalisation: y = x / √(mean of x² + ε) · weight.

    The mean is over the D features of each position. Shapes: x and y (B, …, D), weight (D,). B. Zhang, R. Sennrich,
    "Root mean square layer normalization", NeurIPS 2019.
    """

    name: str
    features: int
    is_frozen: bool = False  # then the weight is given, and no part of the parameter vector

    def parameter_shapes(self) -> dict[str, Shape]:
        return {} if self.is_frozen else {f"{self.name}.weight": (self.features,)}

    def init_arrays(self, rng: np.random.Generator) -> dict[str, HostArray]:  # noqa: ARG002 - the start is not random
        return {name: np.ones(shape) for name, shape in self.parameter_shapes().items()}

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:  # noqa: ARG002 - the same in training and evaluation
        weight = arrays[f"{self.name}.weight"]
        rows = x.reshape(-1, self.features)
        inverse_roots = _inverse_root(_mean_of_rows(rows * rows))
        normalised = rows * inverse_roots[:, None]

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:
            grad_rows = output_grad.reshape(-1, self.features)
            products = grad_rows * normalised
            if not self.is_frozen:
                yield ArrayGradient(f"{self.name}.weight", products.sum(axis=0))
            if not needs_input_grad:
                return None
            grad = grad_rows * weight
            grad -= normalised * (products @ (weight / self.features))[:, None]
            grad *= inverse_roots[:, None]
            return grad.reshape(x.shape)

        return (normalised * weight).reshape(x.shape), backward

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        return LayerCost(input_shape, {})


def _mean_of_rows(rows: Array) -> Vector:
    """Return the mean of each row of a matrix."""
    features = rows.shape[1]
    return rows @ array_namespace(rows).full(features, 1 / features, rows.dtype)


def _inverse_root(variances: Vector) -> Vector:
    return 1 / array_namespace(variances).sqrt(variances + EPSILON)
