"""LAMB: Adam whose step in each array is as long as a share of the array's norm."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from services.learning.layout import ArrayRange
from services.learning.optimisers.adam_moments import AdamMoments
from services.learning.optimisers.base import OptimiserState
from services.learning.optimisers.layer_wise import LayerWiseOptimiser, divide_norms
from services.schema.arrays import Vector, euclidean_norm


class Lamb(AdamMoments, LayerWiseOptimiser):
    """LAMB, for large batches: Adam with decoupled weight decay and one trust ratio per array.

    With Adam's direction r = m̂ / (√v̂ + ε) and an array θ of the model, u = r + λ·θ and θ ← θ - η·(‖θ‖ / ‖u‖)·u. The
    trust ratio ‖θ‖ / ‖u‖ is 1 if one of the norms is zero. Y. You et al., "Large batch optimization for deep learning:
    training BERT in 76 minutes", ICLR 2020, Algorithm 2, with φ(z) = z. Arrays with one axis: see `LayerWiseOptimiser`.
    """

    kind: Literal["lamb"] = "lamb"
    epsilon: float = Field(default=1e-6, gt=0, description="ε, which keeps the divisor above zero")

    def update_arrays(
        self, params: Vector, grad: Vector, state: OptimiserState, arrays: Sequence[ArrayRange], rate: float
    ) -> tuple[Vector, OptimiserState]:
        step, mean_correction, next_state = self.add_to_moments(grad, state)
        step /= mean_correction
        for array in arrays:
            part = array.vector_range.view
            if self.is_adapted(array):
                self._adapt_step(part(params), part(step))
        step *= rate
        return params - step, next_state

    def _adapt_step(self, entries: Vector, step: Vector) -> None:
        """Add the decay of one array to its step, and scale the step to the norm of the array, in place."""
        if self.weight_decay:
            step += self.weight_decay * entries
        step *= divide_norms(euclidean_norm(entries), euclidean_norm(step)).astype(step.dtype)
