"""Collectives: all-reduce algorithms as data, one per file. `AnyCollective` is the registry."""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.collectives.auto import Auto
from services.collectives.base import Collective, Schedule, Site, Transfer
from services.collectives.double_tree import DoubleTree
from services.collectives.halving_doubling import HalvingDoubling
from services.collectives.hierarchical import Hierarchical
from services.collectives.hierarchical_copy import HierarchicalCopy
from services.collectives.recursive_doubling import RecursiveDoubling
from services.collectives.reduce_to_one import ReduceToOne
from services.collectives.ring import Ring
from services.collectives.tree import Tree

AnyCollective: TypeAlias = Annotated[
    Ring
    | ReduceToOne
    | HierarchicalCopy
    | Tree
    | DoubleTree
    | RecursiveDoubling
    | HalvingDoubling
    | Hierarchical
    | Auto,
    Field(discriminator="kind"),
]

__all__ = [
    "AnyCollective",
    "Auto",
    "Collective",
    "DoubleTree",
    "HalvingDoubling",
    "Hierarchical",
    "HierarchicalCopy",
    "RecursiveDoubling",
    "ReduceToOne",
    "Ring",
    "Schedule",
    "Site",
    "Transfer",
    "Tree",
]
