"""Stochastic gradient descent without momentum."""

from typing import Literal

from services.learning.optimisers.base import ElementWiseOptimiser, OptimiserState
from services.schema.arrays import Vector


class Sgd(ElementWiseOptimiser):
    """Stochastic gradient descent: θ ← θ - η·g.

    θ are the parameters, η is the learning rate and g the gradient. Weight decay is the L2 penalty added to the
    gradient (g + λ·θ), as in PyTorch's SGD. No vectors are kept between updates.
    """

    kind: Literal["sgd"] = "sgd"

    @property
    def applies_momentum(self) -> bool:
        return False

    def init_state(self, params: Vector) -> OptimiserState:  # noqa: ARG002 - it has no slots
        return OptimiserState(0, ())

    def update_entries(
        self, params: Vector, grad: Vector, state: OptimiserState, rate: float
    ) -> tuple[Vector, OptimiserState]:
        return params - rate * self.add_weight_decay(params, grad), OptimiserState(state.update_count + 1, ())
