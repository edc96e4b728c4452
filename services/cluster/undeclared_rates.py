"""Nodes without a declared link rate, in a network that limits the links of other nodes."""

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol, TypeAlias

from services.cluster.network_model import Network

LinkDirection: TypeAlias = Literal["uplink", "downlink"]
DIRECTIONS: tuple[LinkDirection, ...] = ("uplink", "downlink")
SCENARIO_SECTIONS = {"worker": "worker", "ps_shard": "server"}  # role of a node -> key of `cluster`


class NodeLinkRates(Protocol):
    """Node of a plan, with the declared rates of its link in bit/s; None: not declared."""

    @property
    def name(self) -> str: ...

    @property
    def role(self) -> str: ...

    @property
    def uplink_bps(self) -> float | None: ...

    @property
    def downlink_bps(self) -> float | None: ...


def describe_undeclared_rates(nodes: Sequence[NodeLinkRates], network: Network) -> Iterator[str]:
    """Yield a statement for each role with nodes whose link is not limited, while others are.

    A node is left out if links that it shares with others, or links to single nodes, limit all its flows in the same
    direction.

    Args:
        nodes: all nodes of a trial; the coordinator exchanges no gradients and is left out.
        network: of the trial.
    """
    for role, section in SCENARIO_SECTIONS.items():
        of_role = [node for node in nodes if node.role == role]
        unlimited = {direction: _list_unlimited(nodes, of_role, network, direction) for direction in DIRECTIONS}
        in_both = [name for name in unlimited["uplink"] if name in unlimited["downlink"]]
        if in_both:
            yield _describe(in_both, of_role, section, "rate", DIRECTIONS)
        for direction, names in unlimited.items():
            if only := [name for name in names if name not in in_both]:
                yield _describe(only, of_role, section, direction, (direction,))


def _list_unlimited(
    nodes: Sequence[NodeLinkRates], of_role: Sequence[NodeLinkRates], network: Network, direction: LinkDirection
) -> list[str]:
    """Return the names of nodes of a role without a limit in one direction; none if no node declares a rate there."""
    if all(_declared_bps(node, direction) is None for node in nodes):
        return []
    return [
        node.name
        for node in of_role
        if _declared_bps(node, direction) is None
        and not all(_is_limited(node.name, peer, network, direction) for peer in _list_peers(node, nodes))
    ]


def _list_peers(node: NodeLinkRates, nodes: Sequence[NodeLinkRates]) -> list[str]:
    """Return the nodes with which a node exchanges vectors: servers and workers with each other, else all workers."""
    names = {role: [each.name for each in nodes if each.role == role] for role in SCENARIO_SECTIONS}
    if node.role == "worker" and not names["ps_shard"]:
        return [name for name in names["worker"] if name != node.name]
    return names["worker" if node.role == "ps_shard" else "ps_shard"]


def _is_limited(name: str, peer: str, network: Network, direction: LinkDirection) -> bool:
    """Return whether a link that is not the node's own limits its flow to or from another node."""
    source, target = (name, peer) if direction == "uplink" else (peer, name)
    return any(link.carries_flow(source, target) for link in network.shared_links)


def _declared_bps(node: NodeLinkRates, direction: LinkDirection) -> float | None:
    return node.uplink_bps if direction == "uplink" else node.downlink_bps


def _describe(
    names: Sequence[str],
    of_role: Sequence[NodeLinkRates],
    section: str,
    undeclared: str,
    directions: Sequence[LinkDirection],
) -> str:
    """Return the statement on nodes of a role; all nodes of a role are named together."""
    where = f"all {section}s" if len(names) == len(of_role) > 1 else ", ".join(names)
    links, them = ("its link is", "it") if len(names) == 1 else ("their links are", "them")
    keys = " and ".join(f"cluster.{section}.{direction}" for direction in directions)
    beside = "" if undeclared == "rate" else " in this direction"
    return f"{where}: no {undeclared} declared, so {links} not limited{beside}; to limit {them}, declare {keys}"
