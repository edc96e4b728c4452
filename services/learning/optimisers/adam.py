"""Adam, with weight decay as an L2 penalty."""

from typing import Literal

from services.learning.optimisers.adam_moments import AdamMoments
from services.learning.optimisers.base import ElementWiseOptimiser, OptimiserState
from services.schema.arrays import Vector


class Adam(AdamMoments, ElementWiseOptimiser):
    """Optimiser Adam, which scales steps by running means of gradients and of their squares.

    The update is θ ← θ - η·m̂ / (√v̂ + ε). D. P. Kingma, J. Ba, "Adam", ICLR 2015, Algorithm 1. Weight decay is the L2
    penalty added to the gradient (g + λ·θ), as in PyTorch's Adam; see `AdamW` for the decoupled form.
    """

    kind: Literal["adam"] = "adam"

    def update_entries(
        self, params: Vector, grad: Vector, state: OptimiserState, rate: float
    ) -> tuple[Vector, OptimiserState]:
        step, mean_correction, next_state = self.add_to_moments(self.add_weight_decay(params, grad), state)
        step *= rate / mean_correction
        return params - step, next_state
