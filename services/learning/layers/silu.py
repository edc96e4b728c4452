"""Activation function SiLU."""

from collections.abc import Callable
from dataclasses import dataclass

from services.learning.layers.base import ParameterFreeLayer, PassContext
from services.schema.arrays import Array, array_namespace


@dataclass(frozen=True)
class Silu(ParameterFreeLayer):
    """Sigmoid linear unit: y = x·σ(x), with the slope σ(x)·(1 + x - y)."""

    def forward_with_grad_function(self, x: Array, context: PassContext) -> tuple[Array, Callable[[Array], Array]]:  # noqa: ARG002 - the same in training and evaluation
        xp = array_namespace(x)
        sigmoid = (1 + xp.tanh(x / 2)) / 2  # exp would overflow
        y = x * sigmoid
        return y, lambda dy: dy * (sigmoid * (1 + x - y))
