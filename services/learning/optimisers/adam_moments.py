"""Running means of gradients and of their squares, which Adam, AdamW and LAMB share."""

from math import sqrt
from typing import NamedTuple

from pydantic import Field

from services.learning.optimisers.base import Optimiser, OptimiserState
from services.schema.arrays import Vector, array_namespace


class AdamDirection(NamedTuple):
    """Direction of an update of Adam, with the next state of the optimiser."""

    scaled_mean: Vector  # m / (√v̂ + ε), without the bias correction of m
    mean_correction: float  # 1 - β₁ᵗ, by which the direction is still to be divided
    state: OptimiserState


class AdamMoments(Optimiser):
    """Base class of optimisers with Adam's running means of gradients and of their squares.

    The means m ← β₁·m + (1-β₁)·g and v ← β₂·v + (1-β₂)·g² start at zero. The direction at the t-th update is
    m̂ / (√v̂ + ε), where m̂ = m/(1-β₁ᵗ) and v̂ = v/(1-β₂ᵗ). D. P. Kingma, J. Ba, "Adam", ICLR 2015, Algorithm 1.
    """

    beta1: float = Field(default=0.9, ge=0, lt=1, description="decay β₁ of the mean gradient")
    beta2: float = Field(default=0.999, ge=0, lt=1, description="decay β₂ of the mean squared gradient")
    epsilon: float = Field(default=1e-8, gt=0, description="ε, which keeps the divisor above zero")

    @property
    def applies_momentum(self) -> bool:
        return self.beta1 > 0

    def init_state(self, params: Vector) -> OptimiserState:
        zeros = array_namespace(params).zeros_like(params)
        return OptimiserState(0, (zeros, zeros))

    def add_to_moments(self, grad: Vector, state: OptimiserState) -> AdamDirection:
        """Return the direction of the next update, after adding `grad` to the running means.

        The caller may change the direction in place. Arrays are reused, since new memory takes as long as the compute.
        """
        (old_mean, old_square), count, xp = state.slots, state.update_count + 1, array_namespace(grad)
        mean, square, grad_square = self.beta1 * old_mean, self.beta2 * old_square, grad * grad
        mean += (1 - self.beta1) * grad
        grad_square *= 1 - self.beta2
        square += grad_square
        scale = xp.sqrt(square, out=grad_square)
        scale /= sqrt(1 - self.beta2**count)
        scale += self.epsilon
        scaled_mean = xp.divide(mean, scale, out=scale)
        return AdamDirection(scaled_mean, 1 - self.beta1**count, OptimiserState(count, (mean, square)))
