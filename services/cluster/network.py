"""Networks: what a scenario may say of links, and what a plan makes of it.

A node has a port (`port`) with two directions. Topologies (`topologies`) and extra links add pipes that many nodes
share and delays between pairs. `model` is what engines enforce: pipes and paths, whatever the scenario called them.
"""

from services.cluster.impairments import AnyJitter, AnyLoss
from services.cluster.network_model import Network, Path, Pipe
from services.cluster.port import Port, PortOverride
from services.cluster.resolve import resolve
from services.cluster.round_trips import RoundTrip, round_trip
from services.cluster.topologies import AnyTopology, Member, PairLink, Switch, Topology

__all__ = [
    "AnyJitter",
    "AnyLoss",
    "AnyTopology",
    "Member",
    "Network",
    "PairLink",
    "Path",
    "Pipe",
    "Port",
    "PortOverride",
    "RoundTrip",
    "Switch",
    "Topology",
    "resolve",
    "round_trip",
]
