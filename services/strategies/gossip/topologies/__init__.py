"""Gossip topologies: with whom each worker mixes its parameters, one file per topology.

`AnyGossipTopology` lists all topologies.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.strategies.gossip.topologies.base import GossipTopology
from services.strategies.gossip.topologies.complete import CompleteGossip
from services.strategies.gossip.topologies.exponential import ExponentialGossip
from services.strategies.gossip.topologies.graph import GraphGossip
from services.strategies.gossip.topologies.ring import RingGossip

AnyGossipTopology: TypeAlias = Annotated[
    RingGossip | ExponentialGossip | CompleteGossip | GraphGossip, Field(discriminator="kind")
]

__all__ = [
    "AnyGossipTopology",
    "CompleteGossip",
    "ExponentialGossip",
    "GossipTopology",
    "GraphGossip",
    "RingGossip",
]
