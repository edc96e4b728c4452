"""Activation functions, each with its slope."""

from collections.abc import Callable
from dataclasses import dataclass
from math import pi
from typing import Literal, TypeAlias

from services.learning.layers.base import ParameterFreeLayer, PassContext
from services.learning.layers.initialisation import VarianceRule, glorot_variance, he_variance
from services.schema.arrays import Array, array_namespace

ActivationName: TypeAlias = Literal["relu", "tanh"]

GELU_LINEAR, GELU_CUBIC = (2 / pi) ** 0.5, 0.044715  # factors of the tanh form


@dataclass(frozen=True)
class Relu(ParameterFreeLayer):
    """Rectifier: y = max(x, 0); the slope at 0 is 0."""

    variance: VarianceRule = he_variance

    def forward_with_grad_function(self, x: Array, context: PassContext) -> tuple[Array, Callable[[Array], Array]]:  # noqa: ARG002 - the same in training and evaluation
        y = x.clip(0)
        return y, lambda dy: dy * (y > 0)  # the next layer keeps y anyway, and x can be freed


@dataclass(frozen=True)
class Tanh(ParameterFreeLayer):
    """Hyperbolic tangent: y = tanh x, with the slope 1 - y²."""

    variance: VarianceRule = glorot_variance

    def forward_with_grad_function(self, x: Array, context: PassContext) -> tuple[Array, Callable[[Array], Array]]:  # noqa: ARG002 - see above
        y = array_namespace(x).tanh(x)
        return y, lambda dy: dy * (1 - y * y)


@dataclass(frozen=True)
class Gelu(ParameterFreeLayer):
    """Gaussian error linear unit in its tanh form: y = x·h with h = (1 + tanh(√(2/π)·(x + 0.044715·x³))) / 2.

    The slope is h·(1 + 2·(x - y)·√(2/π)·(1 + 3·0.044715·x²)). D. Hendrycks, K. Gimpel, "Gaussian error linear units",
    2016, as in GPT-2. NumPy has no error function for the exact form.
    """

    def forward_with_grad_function(self, x: Array, context: PassContext) -> tuple[Array, Callable[[Array], Array]]:  # noqa: ARG002 - see above
        share = x * x
        share *= GELU_LINEAR * GELU_CUBIC
        share += GELU_LINEAR
        share *= x
        array_namespace(x).tanh(share, out=share)
        share += 1
        share *= 0.5
        y = share * x

        def input_grad(output_grad: Array) -> Array:
            grad = x * x
            grad *= 6 * GELU_LINEAR * GELU_CUBIC
            grad += 2 * GELU_LINEAR
            grad *= x - y
            grad += 1
            grad *= share
            grad *= output_grad
            return grad

        return y, input_grad


@dataclass(frozen=True)
class Silu(ParameterFreeLayer):
    """Sigmoid linear unit: y = x·s with s = 1 / (1 + exp(-x)), and the slope s·(1 + x - y).

    The sigmoid is computed as (1 + tanh(x/2)) / 2, which cannot overflow. S. Elfwing et al., "Sigmoid-weighted linear
    units", 2018.
    """

    def forward_with_grad_function(self, x: Array, context: PassContext) -> tuple[Array, Callable[[Array], Array]]:  # noqa: ARG002 - see above
        share = x * 0.5
        array_namespace(x).tanh(share, out=share)
        share += 1
        share *= 0.5
        y = share * x

        def input_grad(output_grad: Array) -> Array:
            grad = x - y
            grad += 1
            grad *= share
            grad *= output_grad
            return grad

        return y, input_grad


ACTIVATIONS: dict[ActivationName, Relu | Tanh] = {"relu": Relu(), "tanh": Tanh()}
