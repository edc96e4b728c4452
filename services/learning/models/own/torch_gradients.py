"""Gradients of a module of PyTorch, written to one vector while the backward pass runs."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from services.learning.layout import VectorRange
from services.schema.arrays import HostArray


class GradientWriter:
    """Hooks at the trainable parameters of a module, which write gradients to their ranges of a vector.

    A gradient is copied while it is in the processor's cache, and its memory is used again for the next one: measured
    faster than one copy of all gradients after the backward pass. Gradients that accumulate in views of the vector
    would save the copy, but are slower: the vector must be zero, and is then read and written.
    """

    def __init__(self, params: Sequence[tuple[VectorRange, Any]]) -> None:
        """Register the hooks.

        Args:
            params: ranges of the vector, and the parameters (`torch.nn.Parameter`) to which they belong.
        """
        self._ranges = frozenset(vector_range for vector_range, _ in params)
        self._vector: HostArray | None = None  # to which the present backward pass writes
        self._missing: set[VectorRange] = set()
        for vector_range, param in params:
            param.register_post_accumulate_grad_hook(partial(self._write_gradient, vector_range))

    def write_gradients(self, loss: Any, vector: HostArray) -> None:
        """Run the backward pass of a loss (`torch.Tensor`), and write all gradients to a vector.

        Parameters on which the loss does not depend have the gradient zero.
        """
        self._vector, self._missing = vector, set(self._ranges)
        try:
            loss.backward()
        finally:
            self._vector = None
        for vector_range in self._missing:
            vector_range.view(vector).fill(0)

    def _write_gradient(self, vector_range: VectorRange, param: Any) -> None:
        """Move the gradient of a parameter to the vector.

        Re-entrant checkpoints run backward passes inside the backward pass. Then a parameter that several of them use
        has several gradients, which are added in the order in which PyTorch adds them.
        """
        if self._vector is None:  # gradients stay at their parameters
            return
        target = vector_range.view(self._vector).reshape(param.shape)
        if vector_range in self._missing:
            np.copyto(target, param.grad.numpy())
            self._missing.discard(vector_range)
        else:
            np.add(target, param.grad.numpy(), out=target)
        param.grad = None
