"""Collectives: all-reduce algorithms as data. `Ring` is the one there is; `AnyCollective` is the registry."""

from services.collectives.base import Collective, Route
from services.collectives.ring import Ring

AnyCollective = Ring  # becomes a union discriminated by `kind` with the second member

__all__ = ["AnyCollective", "Collective", "Ring", "Route"]
