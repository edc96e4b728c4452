"""Digest of the parameters that a script has trained: replicas of data-parallel training have equal ones."""

import hashlib
from collections.abc import Iterable
from typing import Any


def digest_parameters(optimisers: Iterable[Any]) -> str | None:
    """Return the SHA-256 digest of all parameters of these optimisers, in their order.

    Return None if there are none, or if a rank has only a part of them, as with fully sharded training.
    """
    parameters = [
        parameter for optimiser in optimisers for group in optimiser.param_groups for parameter in group["params"]
    ]
    if not parameters or any(hasattr(parameter, "to_local") for parameter in parameters):
        return None
    digest = hashlib.sha256()
    for parameter in parameters:
        digest.update(bytes(parameter.detach().cpu().contiguous().clone().untyped_storage()))
    return digest.hexdigest()
