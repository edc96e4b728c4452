"""Overlap of a gradient exchange with the backward pass that computes the gradient.

base        contract, and the buckets of a gradient
none        the exchange begins after the backward pass
buckets     each bucket of the gradient is summed as soon as it has been computed
priority    the first layers are summed first, and begin the next step early
timeline    times at which buckets are ready, exchanged and used again
reduction   sum of a gradient, part by part, during the backward pass

`AnyOverlap` is the registry: a scenario may name each member of this union by its `kind`.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.strategies.overlap.base import GradientBucket, Overlap
from services.strategies.overlap.buckets import BucketOverlap
from services.strategies.overlap.none import NoOverlap
from services.strategies.overlap.priority import PriorityOverlap
from services.strategies.overlap.reduction import BucketReduction

AnyOverlap: TypeAlias = Annotated[NoOverlap | BucketOverlap | PriorityOverlap, Field(discriminator="kind")]

__all__ = [
    "AnyOverlap",
    "BucketOverlap",
    "BucketReduction",
    "GradientBucket",
    "NoOverlap",
    "Overlap",
    "PriorityOverlap",
]
