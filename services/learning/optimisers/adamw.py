"""AdamW: Adam with decoupled weight decay."""

from typing import Literal

from services.learning.optimisers.adam_moments import AdamMoments
from services.learning.optimisers.base import ElementWiseOptimiser, OptimiserState
from services.schema.arrays import Vector


class AdamW(AdamMoments, ElementWiseOptimiser):
    """Adam with decoupled weight decay: the decay does not enter Adam's running means.

    The update is θ ← θ - η·λ·θ - η·m̂ / (√v̂ + ε). I. Loshchilov, F. Hutter, "Decoupled weight decay regularization",
    ICLR 2019, Algorithm 2, in PyTorch's form: the learning rate η and its schedule multiply the decay too. As in the
    paper, all arrays decay, also biases and the scales of normalisations.
    """

    kind: Literal["adamw"] = "adamw"

    def update_entries(
        self, params: Vector, grad: Vector, state: OptimiserState, rate: float
    ) -> tuple[Vector, OptimiserState]:
        step, mean_correction, next_state = self.add_to_moments(grad, state)
        step *= rate / mean_correction
        if not self.weight_decay:
            return params - step, next_state
        decayed = params * (1 - rate * self.weight_decay)
        decayed -= step
        return decayed, next_state
