"""How is a pipe shaped that many nodes share? In a namespace that its traffic passes, by what it passes first or last.

Two trees stand one after the other there: what arrives is shaped on an ifb, what leaves on the interface. Pipes that
follow each other on some path go to different trees, as the uplink of one rack and the downlink of another.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from compose.shaping import filters
from compose.shaping import htb_tree as tree
from compose.shaping import tc_output as reading
from compose.shaping.link_state import members
from services.cluster.network import SharedLink
from services.plan import Plan
from services.schema.errors import HostError

SWITCH = "switch"
IFB = "ifb0"
TREES = 2


def shared(plan: Plan) -> tuple[SharedLink, ...]:
    """The pipes that a switch has to shape."""
    return tuple(pipe for pipe in plan.network.shared_links if pipe.serves_many_pairs)


def pipes_between(plan: Plan, source: str, target: str) -> tuple[SharedLink, ...]:
    """The shared pipes between two nodes."""
    return tuple(pipe for pipe in plan.network.shared_links_between(source, target) if pipe.serves_many_pairs)


def address(plan: Plan) -> str:
    """Where the switch stands: nodes begin at .10, the gateway of a network without a way out is .1."""
    return plan.nodes[0].addresses.data.host.rsplit(".", 1)[0] + ".2"


def script(plan: Plan) -> str:
    """A shell script that shapes all shared pipes and prints what the kernel then has."""
    incoming, outgoing = split(plan)
    lines = [
        *_find(plan),
        *tree.redirect("$dev", IFB),
        "tc -batch - <<END",
        *_tree(IFB, plan, incoming),
        *_tree("$dev", plan, outgoing),
        "END",
    ]
    return "\n".join([*lines, *_show()])


def shown(plan: Plan) -> str:
    """A script that prints what the kernel has now."""
    return "\n".join([*_find(plan), *_show()])


def counters(plan: Plan) -> str:
    """A script that prints what both trees have counted."""
    return "\n".join([*_find(plan), *reading.counting((IFB, "$dev"))])


def wanted(plan: Plan) -> dict[tuple[str, str], tuple[SharedLink, float]]:
    """(direction, class) -> pipe and bit/s that the kernel should have."""
    return {
        (name, _class(k)): (pipe, pipe.rate_bps / plan.dilation)
        for name, pipes in zip(("in", "out"), split(plan), strict=True)
        for k, pipe in enumerate(pipes)
    }


def split(plan: Plan) -> tuple[tuple[SharedLink, ...], tuple[SharedLink, ...]]:
    """Who is shaped on arrival and who on departure; no path meets two pipes of the same tree.

    Raises:
        HostError: some path meets more pipes than there are trees.
    """
    pipes = shared(plan)
    side: dict[str, int] = {}
    for pipe in pipes:
        if pipe.name not in side:
            _colour(pipe, pipes, side)
    return tuple(p for p in pipes if side[p.name] == 0), tuple(p for p in pipes if side[p.name] == 1)


def _find(plan: Plan) -> list[str]:
    return ["set -e", f"dev=$(ip -o -4 addr show to {address(plan)} | awk '{{print $2}}')"]


def _show() -> list[str]:
    devices = (("in", IFB), ("out", "$dev"))
    shown = [line for name, device in devices for line in (f"echo device {name}", f"tc class show dev {device}")]
    return [*shown, *reading.showing_structure(IFB, "$dev")]


def _colour(first: SharedLink, pipes: Sequence[SharedLink], side: dict[str, int]) -> None:
    """Breadth first: who meets a pipe goes to the other side."""
    side[first.name] = 0
    waiting = deque([first])
    while waiting:
        pipe = waiting.popleft()
        for other in _meets(pipe, pipes):
            if other.name not in side:
                side[other.name] = 1 - side[pipe.name]
                waiting.append(other)
            elif side[other.name] == side[pipe.name]:
                raise HostError(f"{pipe.name} and {other.name}: a path meets more than {TREES} shared limits")


def _meets(pipe: SharedLink, pipes: Sequence[SharedLink]) -> Iterable[SharedLink]:
    """Pipes that some path passes besides this one."""
    ways = {(a, b) for a in pipe.sources for b in pipe.targets}
    return (other for other in pipes if other != pipe and any(other.carries(a, b) for a, b in ways))


def _tree(device: str, plan: Plan, pipes: Sequence[SharedLink]) -> list[str]:
    """A class per pipe; what belongs to none passes directly."""
    addresses = {node.name: node.addresses.data.host for node in members(plan)}
    lines = [tree.root(device)]
    classes: dict[tuple[str, str], str] = {}
    for k, pipe in enumerate(pipes):
        lines += [tree.limit(device, "1:", _class(k), pipe.rate_bps / plan.dilation)]
        # 1000 packets, not a port's 512 KiB: it stands for as many links as a rack has members, and messages that it
        # dropped the end of waited 200 ms for TCP's timer.
        lines += tree.queue(device, _class(k))
        classes |= {(addresses[a], addresses[b]): _class(k) for a in pipe.sources for b in pipe.targets if a != b}
    return lines + (filters.by_both(device, classes) if classes else [])


def _class(number: int) -> str:
    return f"1:{0x10 + number:x}"
