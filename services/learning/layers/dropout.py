"""Dropout: random zeros in training."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from services.learning.layers.base import ParameterFreeLayer, PassContext
from services.schema.arrays import Array


@dataclass(frozen=True)
class Dropout(ParameterFreeLayer):
    """Layer that sets each number to zero with the probability `rate`, and divides the others by 1 - rate.

    The mean of every number stays the same. In evaluation, the output is the input. N. Srivastava et al., "Dropout",
    JMLR 15, 2014, in the inverted form of section 10.
    """

    rate: float  # at least 0, less than 1

    def forward_with_grad_function(self, x: Array, context: PassContext) -> tuple[Array, Callable[[Array], Array]]:
        if not context.is_training or self.rate == 0:
            return x, lambda dy: dy
        is_kept = context.random_generator(x).random(x.shape, dtype=np.float32) >= self.rate
        factors = is_kept.astype(x.dtype) / (1 - self.rate)
        return x * factors, lambda dy: dy * factors
