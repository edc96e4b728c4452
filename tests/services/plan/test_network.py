"""The network between nodes: shared links and paths that follow from a scenario."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise, permutations
from random import Random
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cluster.links.impairments import (
    AnyPacketLoss,
    GilbertElliottPacketLoss,
    IndependentPacketLoss,
    Jitter,
    LognormalJitter,
    NormalJitter,
)
from services.cluster.network import AccessLink, Network, NetworkPath, NodePairLink, StarTopology, build_network
from services.cluster.topologies import RackTopology, Region, RegionLink, RegionTopology, Topology
from services.schema.units import Duration, Rate

MS = 1e-3


@dataclass(frozen=True)
class Node:
    """A node of a network: a worker or a server."""

    role: str
    rank: int

    @property
    def name(self) -> str:
        return f"{'worker' if self.role == 'worker' else 'server'}-{self.rank}"


def members(workers: int, servers: int = 0) -> list[Node]:
    shards = [Node("ps_shard", rank) for rank in range(servers)]
    return [*shards, *(Node("worker", rank) for rank in range(workers))]


def network(
    topology: Topology,
    workers: int,
    servers: int = 0,
    links: tuple[NodePairLink, ...] = (),
    port: AccessLink | None = None,
) -> Network:
    nodes = members(workers, servers)
    return build_network(topology, links, nodes, {node.name: port or AccessLink() for node in nodes})


def mean_and_deviation(sample: Iterator[float], count: int = 20_000) -> tuple[float, float]:
    """Return the mean and the standard deviation of a sample."""
    samples = list(islice(sample, count))
    return fmean(samples), stdev(samples)


def test_a_star_topology_adds_no_links_and_no_delay() -> None:
    """Only the nodes' own links count."""
    assert network(StarTopology(), 4, 1) == Network()


def test_delays_of_access_links_and_pair_links_add_up_along_a_path() -> None:
    """A message passes the access links of both nodes and the link between them."""
    link = NodePairLink(nodes=("worker-0", "worker-1"), delay=Duration("20ms"))

    built = network(StarTopology(), 3, links=(link,), port=AccessLink(delay=Duration("1ms")))

    assert built.path_between("worker-0", "worker-1").delay_s == pytest.approx(22 * MS)
    assert built.path_between("worker-1", "worker-0").delay_s == pytest.approx(22 * MS)
    assert built.path_between("worker-1", "worker-2").delay_s == pytest.approx(2 * MS)


def test_a_link_of_one_direction_does_not_change_the_other_direction() -> None:
    """A satellite link, for example, is slow in one direction."""
    link = NodePairLink(nodes=("worker-0", "worker-1"), rate=Rate("1mbit"), delay=Duration("5ms"), both_ways=False)

    built = network(StarTopology(), 2, links=(link,))

    assert [pipe.rate_bps for pipe in built.shared_links_between("worker-0", "worker-1")] == [1e6]
    assert built.shared_links_between("worker-1", "worker-0") == ()
    assert built.path_between("worker-1", "worker-0").delay_s == 0


def test_links_of_absent_nodes_are_omitted() -> None:
    """All trials of a sweep over workers share one list of links."""
    link = NodePairLink(nodes=("worker-0", "worker-7"), rate=Rate("1mbit"))

    assert network(StarTopology(), 4, links=(link,)) == Network()


def test_a_link_profile_sets_the_delay_and_the_scenario_sets_the_rate() -> None:
    """A declared delay replaces that of the profile."""
    regions = RegionTopology(
        regions={"eu": Region(), "us": Region(workers=(1,))},
        between=(RegionLink(regions=("eu", "us"), link="wan-eu-us", rate=Rate("100mbit")),),
    )

    built = network(regions, 2)

    assert built.path_between("worker-0", "worker-1").delay_s == pytest.approx(45 * MS)
    assert [pipe.rate_bps for pipe in built.shared_links_between("worker-1", "worker-0")] == [1e8]
    assert NodePairLink(nodes=("a", "b"), link="metro", delay=Duration("2ms")).with_distance_delay.delay == 2 * MS


@given(workers=st.integers(1, 40), servers=st.integers(0, 9), size=st.integers(1, 12))
def test_every_node_is_in_one_rack_and_all_but_the_last_rack_are_full(workers: int, servers: int, size: int) -> None:
    """Workers fill the racks by rank; only the last rack may have free places."""
    racks = RackTopology(size=size, uplink=Rate("1gbit")).colocated_node_groups(members(workers, servers))

    names = [name for rack in racks for name in rack]
    workers_by_rack = [[name for name in rack if name.startswith("worker")] for rack in racks]
    assert sorted(names) == sorted(node.name for node in members(workers, servers))
    assert [name for rack in workers_by_rack for name in rack] == [f"worker-{rank}" for rank in range(workers)]
    assert all(len(rack) == size for rack in workers_by_rack[:-1])


@given(workers=st.integers(1, 12), servers=st.integers(0, 3), size=st.integers(1, 12))
def test_traffic_passes_two_rack_links_only_between_racks(workers: int, servers: int, size: int) -> None:
    """Between racks a message passes an uplink and a downlink; inside a rack, none."""
    racks = RackTopology(size=size, uplink=Rate("2gbit"), downlink=Rate("1gbit"), delay=Duration("1ms"))
    nodes, built = members(workers, servers), network(racks, workers, servers)
    rack_of_node = {name: number for number, rack in enumerate(racks.colocated_node_groups(nodes)) for name in rack}

    for a, b in permutations((node.name for node in nodes), 2):
        expected = (
            [(f"rack-{rack_of_node[a]} up", 2e9), (f"rack-{rack_of_node[b]} down", 1e9)]
            if rack_of_node[a] != rack_of_node[b]
            else []
        )
        assert [(pipe.name, pipe.rate_bps) for pipe in built.shared_links_between(a, b)] == expected
        assert built.path_between(a, b).delay_s == (MS if expected else 0)


def test_nodes_without_a_declared_region_are_in_the_first_region() -> None:
    """A scenario lists only the nodes of the other regions."""
    regions = RegionTopology(
        regions={"eu": Region(), "us": Region(workers=(2, 3), servers=(1,))},
        between=(RegionLink(regions=("eu", "us"), delay=Duration("40ms")),),
    )

    assert regions.colocated_node_groups(members(4, 2)) == (
        ("server-0", "worker-0", "worker-1"),
        ("server-1", "worker-2", "worker-3"),
    )


@pytest.mark.parametrize("jitter", [NormalJitter, LognormalJitter])
@given(mean_ms=st.floats(1, 100), relative=st.floats(0.01, 0.3), seed=st.integers(0, 9))
def test_delays_have_the_declared_mean_and_deviation(
    jitter: type[Jitter], mean_ms: float, relative: float, seed: int
) -> None:
    """Up to a deviation of a third of the mean, where a normal delay begins to be cut at zero."""
    mean_s = mean_ms * MS
    jitter_law = jitter.model_validate({"deviation": Duration(relative * mean_s)})
    path = NetworkPath(source="a", target="b", delay_s=mean_s, jitters=(jitter_law,))

    mean, deviation = mean_and_deviation(path.iter_one_way_delays_s(Random(seed)), 4000)

    assert mean == pytest.approx(mean_s, rel=5 * relative / 4000**0.5)
    assert deviation == pytest.approx(relative * mean_s, rel=0.1)


def test_jitters_along_a_path_are_independent() -> None:
    """The variances of the jitters add up."""
    jitter = NormalJitter(deviation=Duration("3ms"))
    other = NormalJitter(deviation=Duration("4ms"))

    mean, deviation = mean_and_deviation(
        NetworkPath(source="a", target="b", delay_s=0.05, jitters=(jitter, other)).iter_one_way_delays_s(Random(1))
    )

    assert (mean, deviation) == (pytest.approx(0.05, rel=0.01), pytest.approx(5 * MS, rel=0.03))


@pytest.mark.parametrize(
    ("loss", "mean"),
    [
        (IndependentPacketLoss(share=0.02), 0.02),
        (GilbertElliottPacketLoss(to_bad=0.01, to_good=0.3), 0.01 / 0.31),
        (GilbertElliottPacketLoss(to_bad=0.02, to_good=0.2, share_bad=0.5, share_good=0.01), (0.5 + 10 * 0.01) / 11),
    ],
    ids=["independent", "bursts", "both states lose"],
)
def test_losses_have_the_declared_share(loss: AnyPacketLoss, mean: float) -> None:
    """This is the mean over a long time; a burst of three counts as three losses."""
    lost = fmean(islice(loss.iter_packet_losses(Random(1)), 300_000))

    assert loss.lost_packet_share == pytest.approx(mean)
    assert lost == pytest.approx(mean, rel=0.05)


def test_gilbert_elliott_losses_come_in_bursts() -> None:
    """The mean length of a burst is one over the probability to recover."""
    samples = list(islice(GilbertElliottPacketLoss(to_bad=0.01, to_good=0.25).iter_packet_losses(Random(1)), 200_000))

    burst_count = sum(now and not before for before, now in pairwise(samples))
    assert sum(samples) / burst_count == pytest.approx(4.0, rel=0.05)


def test_a_packet_passes_a_path_only_if_every_link_passes_it() -> None:
    """A path with losses at both ends loses 1 - 0.9 * 0.8 of its packets."""
    path = NetworkPath(
        source="a", target="b", losses=(IndependentPacketLoss(share=0.1), IndependentPacketLoss(share=0.2))
    )

    assert path.lost_packet_share == pytest.approx(0.28)
