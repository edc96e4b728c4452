"""Activation functions, each with its slope."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from services.learning.layers.base import ParameterFreeLayer, PassContext
from services.learning.layers.initialisation import VarianceRule, glorot_variance, he_variance
from services.schema.arrays import Array, array_namespace

ActivationName: TypeAlias = Literal["relu", "tanh"]


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


ACTIVATIONS: dict[ActivationName, Relu | Tanh] = {"relu": Relu(), "tanh": Tanh()}
