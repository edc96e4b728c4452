"""Stochastic gradient descent with momentum."""

from typing import Literal

from pydantic import Field

from services.learning.optimisers.base import ElementWiseOptimiser, OptimiserState
from services.schema.arrays import Vector, array_namespace


class Momentum(ElementWiseOptimiser):
    """Stochastic gradient descent with momentum.

    Velocity v ← μ·v + g, parameters θ ← θ - η·v. With `nesterov`, θ ← θ - η·(g + μ·v). μ is the momentum, g the
    gradient and η the learning rate. v starts at zero. Weight decay is the L2 penalty added to the gradient (g + λ·θ).

    I. Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013, in PyTorch's
    form: the learning rate multiplies the velocity when it is applied, not the gradient when it is added.
    """

    kind: Literal["momentum"] = "momentum"
    momentum: float = Field(default=0.9, ge=0, lt=1, description="momentum μ")
    nesterov: bool = Field(default=False, description="whether to use Nesterov's form")

    @property
    def applies_momentum(self) -> bool:
        return self.momentum > 0

    def init_state(self, params: Vector) -> OptimiserState:
        return OptimiserState(0, (array_namespace(params).zeros_like(params),))

    def update_entries(
        self, params: Vector, grad: Vector, state: OptimiserState, rate: float
    ) -> tuple[Vector, OptimiserState]:
        grad, (velocity,) = self.add_weight_decay(params, grad), state.slots
        velocity = self.momentum * velocity
        velocity += grad
        direction = grad + self.momentum * velocity if self.nesterov else velocity
        return params - rate * direction, OptimiserState(state.update_count + 1, (velocity,))
