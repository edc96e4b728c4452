"""Collectives: all-reduce algorithms, each of which is a schedule of transfers between ranks.

`AnyCollective` lists all collectives.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.collectives.auto import AutoCollective
from services.collectives.base import Collective, NetworkAndModelSizes, Transfer, TransferSchedule
from services.collectives.double_tree import DoubleBinaryTree
from services.collectives.halving_doubling import HalvingDoubling
from services.collectives.hierarchical import HierarchicalAllReduce
from services.collectives.hierarchical_copy import HierarchicalCopyAllReduce
from services.collectives.recursive_doubling import RecursiveDoubling
from services.collectives.reduce_to_one import ReduceToOne
from services.collectives.ring import Ring
from services.collectives.tree import BinomialTree

AnyCollective: TypeAlias = Annotated[
    Ring
    | ReduceToOne
    | HierarchicalCopyAllReduce
    | BinomialTree
    | DoubleBinaryTree
    | RecursiveDoubling
    | HalvingDoubling
    | HierarchicalAllReduce
    | AutoCollective,
    Field(discriminator="kind"),
]

__all__ = [
    "AnyCollective",
    "AutoCollective",
    "BinomialTree",
    "Collective",
    "DoubleBinaryTree",
    "HalvingDoubling",
    "HierarchicalAllReduce",
    "HierarchicalCopyAllReduce",
    "NetworkAndModelSizes",
    "RecursiveDoubling",
    "ReduceToOne",
    "Ring",
    "Transfer",
    "TransferSchedule",
]
