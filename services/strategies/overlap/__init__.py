"""Overlap of a gradient exchange with the backward pass that computes the gradient.

base        contract, and the buckets of a gradient
none        the exchange begins after the backward pass
buckets     each bucket of the gradient is summed as soon as it has been computed
reduction   sum of a gradient, bucket by bucket, beside the backward pass

`AnyOverlap` is the registry: a scenario may name each member of this union by its `kind`.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.strategies.overlap.base import GradientBucket, Overlap
from services.strategies.overlap.buckets import BucketOverlap
from services.strategies.overlap.none import NoOverlap
from services.strategies.overlap.reduction import BucketReduction

AnyOverlap: TypeAlias = Annotated[NoOverlap | BucketOverlap, Field(discriminator="kind")]

__all__ = ["AnyOverlap", "BucketOverlap", "BucketReduction", "GradientBucket", "NoOverlap", "Overlap"]
