"""Digest of the parameters that a script has trained: replicas of data-parallel training have equal ones."""

import ctypes
import hashlib
from collections.abc import Iterable
from typing import Any


class TrainedParameters:
    """Parameters of all optimisers that have made an update, in the order of the first updates.

    They are kept alive: a script frees its optimisers before it ends.
    """

    def __init__(self) -> None:
        self._parameters: dict[int, Any] = {}

    def add_optimiser(self, optimiser: Any) -> None:
        """Remember the parameters of an optimiser."""
        for group in optimiser.param_groups:
            for parameter in group["params"]:
                self._parameters.setdefault(id(parameter), parameter)

    def digest(self) -> str | None:
        """Return the SHA-256 digest of all parameters.

        Return None if there are none, or if a rank has only a part of them, as with fully sharded training.
        """
        return _digest(self._parameters.values())


def _digest(parameters: Iterable[Any]) -> str | None:
    tensors = list(parameters)
    if not tensors or any(hasattr(tensor, "to_local") for tensor in tensors):
        return None
    digest = hashlib.sha256()
    for tensor in tensors:
        values = tensor.detach().cpu().contiguous()
        digest.update(ctypes.string_at(values.data_ptr(), values.numel() * values.element_size()))
    return digest.hexdigest()
