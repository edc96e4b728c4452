"""Topologies of the network between the access links: star, racks or regions.

The module also defines links between pairs of nodes.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import Annotated, Literal, NamedTuple, Protocol, Self, TypeAlias

from pydantic import Field, NonNegativeInt, PositiveInt

from services.cluster.links.link_properties import LinkProperties
from services.cluster.network_model import NetworkPath, SharedLink
from services.schema.component import FrozenRecord, ScenarioComponent
from services.schema.conflicts import KeyConflict, prepend_parent_key
from services.schema.units import Duration, Rate


class NetworkNode(Protocol):
    """Name, role and rank of a node, which decide its place in a topology."""

    @property
    def name(self) -> str:
        """Unique name of the node, such as `worker-0`."""

    @property
    def role(self) -> str:
        """Role of the node: `worker` or `ps_shard`."""

    @property
    def rank(self) -> int:
        """Number of the node among all nodes with the same role, counted from 0."""


class Topology(ScenarioComponent):
    """Network topology: how the access links of all nodes are connected."""

    @abstractmethod
    def colocated_node_groups(self, nodes: Sequence[NetworkNode]) -> tuple[tuple[str, ...], ...]:
        """Return the node names of each rack or region.

        All nodes are one group if the network has neither.
        """

    @abstractmethod
    def find_links_shared_by_nodes(self, nodes: Sequence[NetworkNode]) -> tuple[SharedLink, ...]:
        """Return the links whose rate several nodes share."""

    def pair_paths(self, nodes: Sequence[NetworkNode]) -> tuple[NetworkPath, ...]:  # noqa: ARG002 - most have none
        """Return the network paths between pairs of nodes, with their delay and loss.

        Delay and loss of the access links are not included.
        """
        return ()

    def find_field_conflicts(self) -> Iterator[KeyConflict]:
        """Yield a `KeyConflict` for each contradiction between the keys of this topology."""
        return iter(())

    def find_unknown_node_refs(self, max_worker_count: int, max_server_count: int) -> Iterator[KeyConflict]:  # noqa: ARG002 - most name no nodes
        """Yield a `KeyConflict` for every node that this topology names but the cluster lacks.

        Args:
            max_worker_count: largest number of workers in any trial.
            max_server_count: largest number of servers in any trial.
        """
        return iter(())

    def restrict_to_cluster_size(self, worker_count: int, server_count: int) -> Self:  # noqa: ARG002 - most name no nodes
        """Return a copy of this topology for a cluster of `worker_count` workers and `server_count` servers."""
        return self


class StarTopology(Topology):
    """A single network switch that is never the bottleneck: only the access links limit rates."""

    kind: Literal["switch"] = "switch"

    def colocated_node_groups(self, nodes: Sequence[NetworkNode]) -> tuple[tuple[str, ...], ...]:
        return (tuple(node.name for node in nodes),)

    def find_links_shared_by_nodes(self, nodes: Sequence[NetworkNode]) -> tuple[SharedLink, ...]:  # noqa: ARG002
        return ()


class RackTopology(Topology):
    """Racks of equal size, each with an uplink and a downlink that its nodes share.

    Workers fill the racks by rank. Servers are spread over the racks in turn: server k is in rack k modulo the number
    of racks. For example, a rack of four nodes with access links of 1 Gbit/s and an uplink of 2 Gbit/s is
    oversubscribed 2:1.
    """

    kind: Literal["racks"] = "racks"
    size: PositiveInt = Field(description="number of workers per rack; the last rack may have fewer")
    uplink: Rate = Field(description="rate at which all nodes of a rack together send to other racks")
    downlink: Rate | None = Field(
        None, description="rate at which all nodes of a rack together receive from other racks; as uplink when absent"
    )
    delay: Duration | None = Field(None, description="one-way delay between racks, added to that of the access links")

    def colocated_node_groups(self, nodes: Sequence[NetworkNode]) -> tuple[tuple[str, ...], ...]:
        rack_count = max(1, -(-sum(node.role == "worker" for node in nodes) // self.size))
        racks: list[list[str]] = [[] for _ in range(rack_count)]
        for node in nodes:
            racks[node.rank // self.size if node.role == "worker" else node.rank % rack_count].append(node.name)
        return tuple(map(tuple, racks))

    def find_unknown_node_refs(self, max_worker_count: int, max_server_count: int) -> Iterator[KeyConflict]:  # noqa: ARG002 - servers are in racks of workers
        if self.size > max_worker_count:
            yield KeyConflict(
                ("size",), f"a rack of {self.size} workers is larger than the cluster; write {max_worker_count} or less"
            )

    def restrict_to_cluster_size(self, worker_count: int, server_count: int) -> Self:  # noqa: ARG002 - servers are in racks of workers
        return self.model_copy(update={"size": min(self.size, worker_count)})

    def find_links_shared_by_nodes(self, nodes: Sequence[NetworkNode]) -> tuple[SharedLink, ...]:
        racks = self.colocated_node_groups(nodes)
        links = [self._rack_links(number, racks) for number in range(len(racks))] if len(racks) > 1 else []
        return (*(up for up, _ in links), *(down for _, down in links))  # in the order in which messages pass them

    def pair_paths(self, nodes: Sequence[NetworkNode]) -> tuple[NetworkPath, ...]:
        return tuple(
            NetworkPath(source=source, target=target, delay_s=self.delay)
            for source_rack, target_rack in product(self.colocated_node_groups(nodes), repeat=2)
            for source, target in product(source_rack, target_rack)
            if self.delay and source_rack != target_rack
        )

    def _rack_links(self, rack_number: int, nodes_by_rack: Sequence[tuple[str, ...]]) -> tuple[SharedLink, SharedLink]:
        """Return the uplink and the downlink that all nodes of one rack share."""
        inside = nodes_by_rack[rack_number]
        outside = tuple(name for rack in nodes_by_rack if rack != inside for name in rack)
        downlink = self.downlink or self.uplink
        return (
            SharedLink(name=f"rack-{rack_number} up", rate_bps=self.uplink, sources=inside, targets=outside),
            SharedLink(name=f"rack-{rack_number} down", rate_bps=downlink, sources=outside, targets=inside),
        )


class Region(FrozenRecord):
    """Nodes that are near each other, such as those of one data centre."""

    workers: tuple[NonNegativeInt, ...] = Field((), description="ranks of the workers in this region")
    servers: tuple[NonNegativeInt, ...] = Field((), description="numbers of the servers in this region")

    def restrict_to_cluster_size(self, worker_count: int, server_count: int) -> Self:
        """Return a copy of this region without the nodes that a cluster of the given size lacks."""
        update = {
            "workers": tuple(rank for rank in self.workers if rank < worker_count),
            "servers": tuple(rank for rank in self.servers if rank < server_count),
        }
        return self.model_copy(update=update)


class RegionLink(LinkProperties):
    """The link between two regions.

    All nodes of a region share it; both directions have the same properties.
    """

    regions: tuple[str, str] = Field(description="names of the two regions")


class RegionTopology(Topology):
    """Regions with links between them, such as data centres or continents."""

    kind: Literal["regions"] = "regions"
    regions: dict[str, Region] = Field(
        min_length=1, description="name of a region -> its nodes; nodes in no region belong to the first one"
    )
    between: tuple[RegionLink, ...] = Field(min_length=1, description="links between pairs of regions")

    def colocated_node_groups(self, nodes: Sequence[NetworkNode]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(node.name for node in nodes if self._region_name(node) == region) for region in self.regions)

    def find_links_shared_by_nodes(self, nodes: Sequence[NetworkNode]) -> tuple[SharedLink, ...]:
        return tuple(
            SharedLink(
                name=f"{directed.source_region} to {directed.target_region}",
                rate_bps=directed.link.rate,
                sources=directed.sources,
                targets=directed.targets,
            )
            for directed in self._directed_region_links(nodes)
            if directed.link.rate
        )

    def pair_paths(self, nodes: Sequence[NetworkNode]) -> tuple[NetworkPath, ...]:
        return tuple(
            NetworkPath(
                source=source,
                target=target,
                delay_s=link.delay or 0.0,
                jitters=(link.jitter,) if link.jitter else (),
                losses=(link.loss,) if link.loss else (),
            )
            for link, _, _, sources, targets in self._directed_region_links(nodes)
            for source, target in product(sources, targets)
        )

    def find_unknown_node_refs(self, max_worker_count: int, max_server_count: int) -> Iterator[KeyConflict]:
        for name, region in self.regions.items():
            for role, ranks, count in (
                ("workers", region.workers, max_worker_count),
                ("servers", region.servers, max_server_count),
            ):
                if unknown_ranks := [rank for rank in ranks if rank >= count]:
                    allowed = f"ranks are 0 to {count - 1}" if count else "no strategy has servers"
                    yield KeyConflict(("regions", name, role), f"there is no {role[:-1]} {unknown_ranks[0]}; {allowed}")

    def restrict_to_cluster_size(self, worker_count: int, server_count: int) -> Self:
        regions = {
            key: region.restrict_to_cluster_size(worker_count, server_count) for key, region in self.regions.items()
        }
        return self.model_copy(update={"regions": regions})

    def find_field_conflicts(self) -> Iterator[KeyConflict]:
        yield from self._duplicate_node_conflicts()
        for k, link in enumerate(self.between):
            yield from prepend_parent_key("between", prepend_parent_key(k, link.find_field_conflicts()))
            path = ("between", k, "regions")
            for name in link.regions:
                if name not in self.regions:
                    yield KeyConflict(path, f"there is no region {name}; regions are {', '.join(self.regions)}")
            if link.regions[0] == link.regions[1]:
                yield KeyConflict(path, "a link connects two different regions")
            if any(set(link.regions) == set(earlier.regions) for earlier in self.between[:k]):
                yield KeyConflict(path, "another link connects these regions; declare one link per pair")

    def _duplicate_node_conflicts(self) -> Iterator[KeyConflict]:
        """Yield a `KeyConflict` for every node that is in two regions."""
        region_of_node: dict[tuple[str, int], str] = {}
        for name, region in self.regions.items():
            for role, ranks in (("workers", region.workers), ("servers", region.servers)):
                for rank in ranks:
                    if other_region := region_of_node.get((role, rank)):
                        yield KeyConflict(
                            ("regions", name, role),
                            f"{role[:-1]} {rank} is in region {other_region} too; a node is in one region",
                        )
                    region_of_node[role, rank] = name

    def _region_name(self, node: NetworkNode) -> str:
        key = "workers" if node.role == "worker" else "servers"
        matches = (name for name, region in self.regions.items() if node.rank in getattr(region, key))
        return next(matches, next(iter(self.regions)))

    def _directed_region_links(self, nodes: Sequence[NetworkNode]) -> Iterator["_DirectedRegionLink"]:
        """Yield both directions of every link between two regions.

        Links to a region without nodes are left out.
        """
        nodes_by_region = dict(zip(self.regions, self.colocated_node_groups(nodes), strict=True))
        for link in (declared.with_distance_delay for declared in self.between):
            first, second = link.regions
            for source, target in ((first, second), (second, first)):
                if nodes_by_region[source] and nodes_by_region[target]:
                    yield _DirectedRegionLink(link, source, target, nodes_by_region[source], nodes_by_region[target])


class _DirectedRegionLink(NamedTuple):
    """One direction of a link between two regions, and the nodes at both ends."""

    link: RegionLink
    source_region: str
    target_region: str
    sources: tuple[str, ...]  # names of the nodes in the source region
    targets: tuple[str, ...]


AnyTopology: TypeAlias = Annotated[StarTopology | RackTopology | RegionTopology, Field(discriminator="kind")]


class NodePairLink(LinkProperties):
    """Additional rate limit, delay, jitter and packet loss between two nodes."""

    nodes: tuple[str, str] = Field(description="names of sender and receiver, such as [worker-0, worker-3]")
    both_ways: bool = Field(default=True, description="whether the properties hold in the other direction too")

    @property
    def directed_node_pairs(self) -> tuple[tuple[str, str], ...]:
        """Pairs (source, target) of node names to which this link applies.

        There are two pairs if the link applies in both directions, otherwise one.
        """
        return tuple(pairwise((*self.nodes, *self.nodes[:1] * self.both_ways)))

    def key_conflicts_with(self, earlier_links: Sequence[Self]) -> Iterator[KeyConflict]:
        """Yield a `KeyConflict` for each contradiction in this link, and for an earlier link between the same nodes."""
        yield from self.find_field_conflicts()
        if self.nodes[0] == self.nodes[1]:
            yield KeyConflict(
                ("nodes",), f"a link connects two different nodes; replace one {self.nodes[0]} by another node"
            )
        elif any(set(self.directed_node_pairs) & set(link.directed_node_pairs) for link in earlier_links):
            yield KeyConflict(("nodes",), "another link connects these nodes; declare all their properties in one link")
