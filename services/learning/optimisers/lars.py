"""LARS: momentum whose step in each array is as long as a share of the array's norm."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from services.learning.layout import ArrayRange
from services.learning.optimisers.base import OptimiserState
from services.learning.optimisers.layer_wise import LayerWiseOptimiser, divide_norms
from services.schema.arrays import Vector, array_namespace, euclidean_norm


class Lars(LayerWiseOptimiser):
    """LARS, for large batches: momentum with one local learning rate per array.

    The local learning rate of an array θ with the gradient g is κ = τ·‖θ‖ / (‖g‖ + λ·‖θ‖), with the trust coefficient
    τ; it is 1 if a norm of zero makes it zero or infinite. Then v ← μ·v + η·κ·(g + λ·θ) and θ ← θ - v. Y. You,
    I. Gitman, B. Ginsburg, "Large batch training of convolutional networks", arXiv:1708.03888, 2017, Algorithm 1. As in
    the paper, the learning rate η multiplies the gradient when it is added to the velocity, so the velocity keeps the
    rates of earlier steps. Arrays with one axis: see `LayerWiseOptimiser`.
    """

    kind: Literal["lars"] = "lars"
    momentum: float = Field(default=0.9, ge=0, lt=1, description="momentum μ")
    trust_coefficient: float = Field(default=0.001, gt=0, description="trust coefficient τ: share of an array's norm")

    @property
    def applies_momentum(self) -> bool:
        return self.momentum > 0

    def init_state(self, params: Vector) -> OptimiserState:
        return OptimiserState(0, (array_namespace(params).zeros_like(params),))

    def update_arrays(
        self, params: Vector, grad: Vector, state: OptimiserState, arrays: Sequence[ArrayRange], rate: float
    ) -> tuple[Vector, OptimiserState]:
        (velocity,) = state.slots
        velocity = self.momentum * velocity
        for array in arrays:
            part = array.vector_range.view
            part(velocity)[:] += self._scale_gradient(part(params), part(grad), rate, is_adapted=self.is_adapted(array))
        return params - velocity, OptimiserState(state.update_count + 1, (velocity,))

    def _scale_gradient(self, entries: Vector, grad: Vector, rate: float, *, is_adapted: bool) -> Vector:
        """Return the gradient of one array with weight decay, times learning rate and local learning rate."""
        if not is_adapted:
            return rate * grad
        norm = euclidean_norm(entries)
        local_rate = divide_norms(self.trust_coefficient * norm, euclidean_norm(grad) + self.weight_decay * norm)
        decayed = grad + self.weight_decay * entries if self.weight_decay else grad
        return (rate * local_rate).astype(entries.dtype) * decayed
