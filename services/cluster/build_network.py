"""Construction of the emulated network from access links, a topology and links between pairs of nodes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations

from services.cluster.links.access_link import AccessLink
from services.cluster.network_model import Network, NetworkPath, SharedLink
from services.cluster.topologies import NetworkNode, NodePairLink, Topology


def build_network(
    topology: Topology,
    node_pair_links: Sequence[NodePairLink],
    nodes: Sequence[NetworkNode],
    access_links: Mapping[str, AccessLink],
) -> Network:
    """Return the emulated network that results from access links, a topology and links between node pairs.

    The network consists of all links with a shared rate, and of delay and loss between each pair of nodes.

    Args:
        topology: the network between the access links.
        node_pair_links: limits and delays of pairs of nodes; pairs with an absent node are left out.
        nodes: all nodes on the data network.
        access_links: access link by node name, with the values of its named link filled in.
    """
    node_names = {node.name for node in nodes}
    present_links = [link.with_distance_delay for link in node_pair_links if set(link.nodes) <= node_names]
    pair_limits = (
        SharedLink(name=f"{source} to {target}", rate_bps=link.rate, sources=(source,), targets=(target,))
        for link in present_links
        for source, target in link.directed_node_pairs
        if link.rate
    )
    partial_paths = [*topology.pair_paths(nodes), *(path for link in present_links for path in _directed_paths(link))]
    return Network(
        shared_links=(*pair_limits, *topology.find_links_shared_by_nodes(nodes)),
        paths=tuple(_end_to_end_paths(nodes, access_links, partial_paths)),
    )


def _directed_paths(node_pair_link: NodePairLink) -> Iterable[NetworkPath]:
    for source, target in node_pair_link.directed_node_pairs:
        yield NetworkPath(
            source=source,
            target=target,
            delay_s=node_pair_link.delay or 0.0,
            jitters=(node_pair_link.jitter,) if node_pair_link.jitter else (),
            losses=(node_pair_link.loss,) if node_pair_link.loss else (),
        )


def _end_to_end_paths(
    nodes: Sequence[NetworkNode], access_links: Mapping[str, AccessLink], core_network_paths: Iterable[NetworkPath]
) -> Iterable[NetworkPath]:
    """Yield the network path of every ordered pair of nodes that has a delay or a loss.

    A network path states delay, jitter and loss from one node to another. Delays, jitters and losses of both access
    links and of all partial paths of the pair are combined.
    """
    paths_by_pair: defaultdict[tuple[str, str], list[NetworkPath]] = defaultdict(list)
    for path in core_network_paths:
        paths_by_pair[path.source, path.target].append(path)
    delaying = {name for name, link in access_links.items() if link.delay or link.jitter or link.loss}
    for source, target in permutations((node.name for node in nodes), 2):
        links, parts = [access_links[source], access_links[target]], paths_by_pair.get((source, target), [])
        if not parts and source not in delaying and target not in delaying:
            continue  # 1,000 nodes have a million pairs
        joined = NetworkPath(
            source=source,
            target=target,
            delay_s=sum(link.delay or 0.0 for link in links) + sum(part.delay_s for part in parts),
            jitters=(
                *(link.jitter for link in links if link.jitter),
                *(jitter for part in parts for jitter in part.jitters),
            ),
            losses=(*(link.loss for link in links if link.loss), *(loss for part in parts for loss in part.losses)),
        )
        if joined.delay_s or joined.losses:
            yield joined
