"""The network that engines enforce: shared links that limit rates, and paths that delay and lose packets.

A message from a to b passes the uplink of a, then in their order the shared links that have a among their sources and b
among their targets, then the downlink of b. The path from a to b delays the message. Packets are lost at b.
"""

from collections.abc import Iterator
from random import Random

from services.cluster.links.impairments import AnyJitter, AnyPacketLoss
from services.schema.component import FrozenRecord


class SharedLink(FrozenRecord):
    """Link whose rate all flows from its source nodes to its target nodes share."""

    name: str  # such as "rack-0 up"
    rate_bps: float  # virtual; the engine divides it by the dilation
    sources: tuple[str, ...]  # node names
    targets: tuple[str, ...]

    @property
    def serves_many_node_pairs(self) -> bool:
        """Whether more than one pair of source node and target node uses this link."""
        return len(self.sources) * len(self.targets) > 1

    def carries_flow(self, from_node: str, to_node: str) -> bool:
        """Return whether messages from `from_node` to `to_node` pass this link."""
        return from_node in self.sources and to_node in self.targets


class NetworkPath(FrozenRecord):
    """Delay, jitter and packet loss from one node to another, in one direction."""

    source: str  # node name
    target: str
    delay_s: float = 0.0  # mean one-way delay; virtual
    jitters: tuple[AnyJitter, ...] = ()  # independent of each other
    losses: tuple[AnyPacketLoss, ...] = ()  # applied one after the other

    def iter_one_way_delays_s(self, rng: Random) -> Iterator[float]:
        """Yield the one-way delay of each successive message on this path, without end.

        Delays are in virtual seconds.
        """
        delays_s = [jitter.iter_one_way_delays_s(self.delay_s, rng) for jitter in self.jitters]
        while True:
            yield max(0.0, self.delay_s + sum(next(delay_s) - self.delay_s for delay_s in delays_s))

    @property
    def lost_packet_share(self) -> float:
        """Mean share of packets that are lost on this path, in [0, 1]."""
        kept_share = 1.0
        for loss in self.losses:
            kept_share *= 1 - loss.lost_packet_share
        return 1 - kept_share


class Network(FrozenRecord):
    """Emulated network between all nodes of a trial.

    The network consists of links whose rate several flows share, and of delay and packet loss of each path.
    """

    shared_links: tuple[SharedLink, ...] = ()
    paths: tuple[NetworkPath, ...] = ()  # of pairs of nodes with a delay or a loss

    def shared_links_between(self, from_node: str, to_node: str) -> tuple[SharedLink, ...]:
        """Return the shared links on the way from one node to another, in the order of passage."""
        return tuple(link for link in self.shared_links if link.carries_flow(from_node, to_node))

    def path_between(self, from_node: str, to_node: str) -> NetworkPath:
        """Return the path from one node to another node.

        It has no delay and no loss if none is declared.
        """
        matches = (path for path in self.paths if (path.source, path.target) == (from_node, to_node))
        return next(matches, NetworkPath(source=from_node, target=to_node))

    def paths_to(self, target_node: str) -> tuple[NetworkPath, ...]:
        """Return all network paths to this node that have a delay or a packet loss."""
        return tuple(path for path in self.paths if path.target == target_node)
