"""Shaping of links that many nodes share, such as the uplink of a rack.

A container of its own, the network switch, forwards the traffic of these links. Its network namespace has two HTB trees
in a row: one shapes packets on arrival, on an ifb device, the other on departure, on the interface. Links that follow
each other on a path belong to different trees, for example the uplink of one rack and the downlink of another.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from compose.shaping import filters, htb_tree, tc_output
from compose.shaping.htb_tree import IFB_DEVICE
from compose.shaping.link_state import data_network_nodes
from services.cluster.network import SharedLink
from services.plan import Plan
from services.schema.errors import HostError

NETWORK_SWITCH = "switch"  # name of its container among the nodes
TREE_COUNT = 2


def shared_links(plan: Plan) -> tuple[SharedLink, ...]:
    """Return the links of a trial plan that several pairs of nodes share.

    The container of the network switch shapes them.
    """
    return tuple(link for link in plan.network.shared_links if link.serves_many_node_pairs)


def shared_links_between(plan: Plan, source: str, target: str) -> tuple[SharedLink, ...]:
    """Return the shared links on the path from one node to another."""
    return tuple(link for link in plan.network.shared_links_between(source, target) if link.serves_many_node_pairs)


def network_switch_address(plan: Plan) -> str:
    """Return the address of the network switch on the data network.

    It ends in .2: addresses of nodes begin at .10, and .1 is the gateway, even in a network without a route outside.
    """
    return plan.nodes[0].addresses.data.host.rsplit(".", 1)[0] + ".2"


def shared_links_setup_script(plan: Plan) -> str:
    """Return a shell script that shapes all shared links in the network switch.

    The script then prints the kernel's state.
    """
    incoming, outgoing = shared_links_by_htb_tree(plan)
    lines = [
        *_interface_lookup_commands(plan),
        *htb_tree.ingress_redirect_commands("$dev"),
        "tc -batch - <<END",
        *_htb_tree_lines(IFB_DEVICE, plan, incoming),
        *_htb_tree_lines("$dev", plan, outgoing),
        "END",
    ]
    return "\n".join([*lines, *_make_tc_dump_commands()])


def make_tc_dump_script(plan: Plan) -> str:
    """Return a script that prints the traffic control state of the network switch.

    The state consists of the kernel's queues, classes and filters in the network namespace of the switch.
    """
    return "\n".join([*_interface_lookup_commands(plan), *_make_tc_dump_commands()])


def make_htb_counter_script(plan: Plan) -> str:
    """Return a script that prints the counters of both HTB trees of the network switch."""
    return "\n".join([*_interface_lookup_commands(plan), *tc_output.counter_script_lines((IFB_DEVICE, "$dev"))])


def expected_htb_classes(plan: Plan) -> dict[tuple[str, str], tuple[SharedLink, float]]:
    """Return the HTB classes that the kernel should have, with their links and rates.

    The result maps (direction, class) to the link and its wall-clock rate in bit/s.
    """
    return {
        (direction, _class_id(k)): (link, link.rate_bps / plan.dilation)
        for direction, links in zip(("in", "out"), shared_links_by_htb_tree(plan), strict=True)
        for k, link in enumerate(links)
    }


def shared_links_by_htb_tree(plan: Plan) -> tuple[tuple[SharedLink, ...], tuple[SharedLink, ...]]:
    """Split the shared links by the HTB tree in which the network switch shapes them.

    One tree shapes packets on arrival, the other on departure. No path passes two links of the same tree.

    Raises:
        HostError: a path passes more shared links than there are trees.
    """
    links = shared_links(plan)
    tree_of: dict[str, int] = {}  # name of a link -> 0 on arrival, 1 on departure
    for link in links:
        if link.name not in tree_of:
            _assign_links_to_htb_trees(link, links, tree_of)
    incoming = tuple(link for link in links if tree_of[link.name] == 0)
    outgoing = tuple(link for link in links if tree_of[link.name] == 1)
    return incoming, outgoing


def _interface_lookup_commands(plan: Plan) -> list[str]:
    return ["set -e", f"dev=$(ip -o -4 addr show to {network_switch_address(plan)} | awk '{{print $2}}')"]


def _make_tc_dump_commands() -> list[str]:
    devices = (("in", IFB_DEVICE), ("out", "$dev"))
    classes = [line for name, device in devices for line in (f"echo device {name}", f"tc class show dev {device}")]
    return [*classes, *tc_output.make_tc_show_lines(IFB_DEVICE, "$dev")]


def _assign_links_to_htb_trees(
    start_link: SharedLink, all_links: Sequence[SharedLink], htb_tree_by_link: dict[str, int]
) -> None:
    """Assign a link, and all shared links that paths connect with it, to the two HTB trees.

    Two links on the same path get different trees.
    """
    htb_tree_by_link[start_link.name] = 0
    waiting = deque([start_link])
    while waiting:
        link = waiting.popleft()
        for neighbour in _find_same_path_links(link, all_links):
            if neighbour.name not in htb_tree_by_link:
                htb_tree_by_link[neighbour.name] = 1 - htb_tree_by_link[link.name]
                waiting.append(neighbour)
            elif htb_tree_by_link[neighbour.name] == htb_tree_by_link[link.name]:
                raise HostError(
                    f"cluster.network: the path through {link.name} and {neighbour.name} passes more than {TREE_COUNT} "
                    "shared links, which containers can't shape; remove one of these links, or use --engine local"
                )


def _find_same_path_links(shared_link: SharedLink, all_links: Sequence[SharedLink]) -> Iterable[SharedLink]:
    """Return all other shared links that are on the same path as the given link."""
    node_pairs = {(source, target) for source in shared_link.sources for target in shared_link.targets}
    return (
        other for other in all_links if other != shared_link and any(other.carries_flow(*pair) for pair in node_pairs)
    )


def _htb_tree_lines(device: str, plan: Plan, links: Sequence[SharedLink]) -> list[str]:
    """Return the script lines that create one HTB tree, with a class per shared link.

    Packets outside these links are not limited.
    """
    addresses = {node.name: node.addresses.data.host for node in data_network_nodes(plan)}
    lines = [htb_tree.htb_root_line(device)]
    class_ids: dict[tuple[str, str], str] = {}
    for k, link in enumerate(links):
        lines += [htb_tree.htb_class_line(device, "1:", _class_id(k), link.rate_bps / plan.dilation)]
        # The queue holds 1000 packets instead of the 512 KiB of one port, since it stands for the links of all members
        # of a rack. When it dropped the end of a message, the message waited 200 ms for TCP's timer.
        lines += htb_tree.make_queue_tc_lines(device, _class_id(k))
        class_ids |= {(addresses[a], addresses[b]): _class_id(k) for a in link.sources for b in link.targets if a != b}
    return lines + (filters.tc_filter_lines_by_pair(device, class_ids) if class_ids else [])


def _class_id(link_number: int) -> str:
    return f"1:{0x10 + link_number:x}"
