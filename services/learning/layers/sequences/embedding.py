"""Embeddings: trained vectors of tokens and of positions."""

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
from services.learning.tokens import check_tokens
from services.schema.arrays import Array, HostArray, array_namespace

INITIAL_DEVIATION = 0.02  # of embeddings, as in BERT and GPT-2


@dataclass(frozen=True)
class Embedding(Layer):
    """Embedding of tokens: y = weight[x].

    Shapes: tokens x (B, T) as integers, weight (vocabulary, D), y (B, T, D). Tokens have no gradient. The gradient of
    the weight is one matrix product with the tokens as unit vectors. For the small vocabularies here, this is faster
    than adding rows one by one, and the order of the sums is fixed.
    """

    name: str
    vocabulary: int
    features: int
    is_frozen: bool = False  # then the weight is given, and no part of the parameter vector

    def parameter_shapes(self) -> dict[str, Shape]:
        return {} if self.is_frozen else {f"{self.name}.weight": (self.vocabulary, self.features)}

    def init_arrays(self, rng: np.random.Generator) -> dict[str, HostArray]:
        return {name: INITIAL_DEVIATION * rng.standard_normal(shape) for name, shape in self.parameter_shapes().items()}

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:  # noqa: ARG002 - the same in training and evaluation
        weight, xp = arrays[f"{self.name}.weight"], array_namespace(x)
        check_tokens(x, self.vocabulary)

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:  # noqa: ARG001 - tokens have no gradient
            if not self.is_frozen:
                unit_vectors = (xp.arange(self.vocabulary)[:, None] == x.reshape(-1)).astype(output_grad.dtype)
                grad = unit_vectors @ output_grad.reshape(-1, self.features)
                yield ArrayGradient(f"{self.name}.weight", grad)
            return None

        return xp.take(weight, x, axis=0), backward

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        return LayerCost((*input_shape, self.features), {})


@dataclass(frozen=True)
class LearnedPositions(Layer):
    """Layer that adds a trained vector to each position: y[b, t] = x[b, t] + weight[t].

    Shapes: x and y (B, T, D), weight (positions, D) with at least T positions.
    """

    name: str
    positions: int
    features: int

    def parameter_shapes(self) -> dict[str, Shape]:
        return {f"{self.name}.weight": (self.positions, self.features)}

    def init_arrays(self, rng: np.random.Generator) -> dict[str, HostArray]:
        return {f"{self.name}.weight": INITIAL_DEVIATION * rng.standard_normal((self.positions, self.features))}

    def forward(self, arrays: ParameterArrays, x: Array, context: PassContext) -> tuple[Array, BackwardPass]:  # noqa: ARG002 - the same in training and evaluation
        weight, length = arrays[f"{self.name}.weight"], x.shape[1]

        def backward(output_grad: Array, *, needs_input_grad: bool) -> GradientGenerator:
            grad = array_namespace(weight).zeros_like(weight)
            grad[:length] = output_grad.sum(axis=0)
            yield ArrayGradient(f"{self.name}.weight", grad)
            return output_grad if needs_input_grad else None

        return x + weight[:length], backward

    def measure_cost(self, input_shape: Shape) -> LayerCost:
        return LayerCost(input_shape, {})
