"""Partitions: which training samples each worker may use.

iid          all workers share all samples
dirichlet    by class: each worker has its own random mix of classes
shards       by class: each worker has the samples of a few classes
sizes        workers own parts of different sizes

`AnyPartition` is the registry: each member of this union can be named in a scenario by its `kind`.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.learning.partitions.base import Partition, SampleParts
from services.learning.partitions.dirichlet import DirichletPartition
from services.learning.partitions.iid import IidPartition
from services.learning.partitions.shards import ShardsPartition
from services.learning.partitions.sizes import SizesPartition

AnyPartition: TypeAlias = Annotated[
    IidPartition | DirichletPartition | ShardsPartition | SizesPartition, Field(discriminator="kind")
]

__all__ = [
    "AnyPartition",
    "DirichletPartition",
    "IidPartition",
    "Partition",
    "SampleParts",
    "ShardsPartition",
    "SizesPartition",
]
