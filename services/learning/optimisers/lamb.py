"""LAMB: Adam whose step in each array is as long as a share of the array's norm."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from services.learning.layout import ArrayRange
from services.learning.optimisers.adam_moments import AdamMoments
from services.learning.optimisers.base import OptimiserState
from services.learning.optimisers.layer_wise import LayerWiseOptimiser, divide_norms
from services.schema.arrays import Vector, array_namespace, euclidean_norm


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
        scaled_mean, mean_correction, next_state = self.add_to_moments(grad, state)
        direction, updated = scaled_mean / mean_correction, array_namespace(params).empty_like(params)
        for array in arrays:
            part, is_adapted = array.vector_range.view, self.is_adapted(array)
            part(updated)[:] = self._update_array(part(params), part(direction), rate, is_adapted=is_adapted)
        return updated, next_state

    def _update_array(self, entries: Vector, direction: Vector, rate: float, *, is_adapted: bool) -> Vector:
        """Return the entries of one array after a step in Adam's direction."""
        if not is_adapted:
            return entries - rate * direction
        step = direction + self.weight_decay * entries if self.weight_decay else direction
        trust_ratio = divide_norms(euclidean_norm(entries), euclidean_norm(step))
        return entries - (rate * trust_ratio).astype(entries.dtype) * step
