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

    Such a node sends or receives as fast as the host can. A node is left out if a link that it shares with others, or a
    link to another node, limits it in the same direction.

    Args:
        nodes: all nodes of a trial; the coordinator exchanges no gradients and is left out.
        network: of the trial.
    """
    for role, section in SCENARIO_SECTIONS.items():
        of_role = [node for node in nodes if node.role == role]
        unlimited = {direction: _list_unlimited(nodes, of_role, network, direction) for direction in DIRECTIONS}
        in_both = [name for name in unlimited["uplink"] if name in unlimited["downlink"]]
        if in_both:
            where, keys = _name_nodes(in_both, of_role, section), f"{section}.uplink and {section}.downlink"
            yield f"{where}: no rate declared, so {_its_link(in_both)}; {_remedy(keys)}"
        for direction, names in unlimited.items():
            if only := [name for name in names if name not in in_both]:
                where = _name_nodes(only, of_role, section)
                yield f"{where}: no {direction} declared, so it is not limited; {_remedy(f'{section}.{direction}')}"


def _list_unlimited(
    nodes: Sequence[NodeLinkRates], of_role: Sequence[NodeLinkRates], network: Network, direction: LinkDirection
) -> list[str]:
    """Return the names of nodes of a role without a limit in one direction; none if no node declares a rate there."""
    if all(_declared_bps(node, direction) is None for node in nodes):
        return []
    limited_names = {
        name for link in network.shared_links for name in (link.sources if direction == "uplink" else link.targets)
    }
    return [node.name for node in of_role if _declared_bps(node, direction) is None and node.name not in limited_names]


def _declared_bps(node: NodeLinkRates, direction: LinkDirection) -> float | None:
    return node.uplink_bps if direction == "uplink" else node.downlink_bps


def _name_nodes(names: Sequence[str], of_role: Sequence[NodeLinkRates], section: str) -> str:
    """Return the names of nodes; all nodes of a role are named together."""
    return f"every {section}" if len(names) == len(of_role) > 1 else ", ".join(names)


def _its_link(names: Sequence[str]) -> str:
    return "its link is not limited" if len(names) == 1 else "their links are not limited"


def _remedy(keys: str) -> str:
    return f"to limit it, declare {keys} in the section cluster"
