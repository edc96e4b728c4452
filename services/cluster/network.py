"""Records of the emulated network: the links that a scenario declares, and the network that engines enforce.

A scenario gives each node an access link (`access_link`), chooses a topology (`topologies`) and may add links between
pairs of nodes. `build_network` turns them into a `Network` (`network_model`): shared links that limit rates, and paths
that delay and lose packets. Engines enforce the `Network` and know no other part of the declaration.
"""

from services.cluster.build_network import build_network
from services.cluster.links.access_link import AccessLink, AccessLinkSettings
from services.cluster.links.impairments import AnyJitter, AnyPacketLoss
from services.cluster.links.round_trips import ExpectedRoundTripTime, expected_round_trip_time
from services.cluster.network_model import Network, NetworkPath, SharedLink
from services.cluster.topologies import AnyTopology, NetworkNode, NodePairLink, StarTopology, Topology

__all__ = [
    "AccessLink",
    "AccessLinkSettings",
    "AnyJitter",
    "AnyPacketLoss",
    "AnyTopology",
    "ExpectedRoundTripTime",
    "Network",
    "NetworkNode",
    "NetworkPath",
    "NodePairLink",
    "SharedLink",
    "StarTopology",
    "Topology",
    "build_network",
    "expected_round_trip_time",
]
