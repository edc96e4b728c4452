"""Which scripts shape a node's link, change it, and tell what it has counted? Run inside its network namespace."""

from collections.abc import Sequence
from math import inf

from compose.shaping import delays, filters
from compose.shaping import htb_tree as tree
from compose.shaping import tc_output as reading
from compose.shaping.bursts import burst_bytes, segments
from compose.shaping.link_state import LinkState, changes_of, extremes_of, loses, members, state_of
from compose.shaping.mechanisms import Rungs
from compose.shaping.shared_link import pipes_between
from services.cluster.network import NetworkPath
from services.plan import NodePlan, Plan

IFB = "ifb0"
RESTORE = ("iptables-nft-restore", "--noflush")
SINGLE = 1  # packets that TCP hands over at once where single ones may be lost


class NodeLink:
    """One node's link; everything here is decided by the plan and by the rungs of this kernel."""

    def __init__(self, plan: Plan, node: NodePlan, rungs: Rungs, switch: str | None) -> None:
        """`switch` is the data address of what forwards to other racks and regions; None where nothing does."""
        self._plan, self._node, self._rungs, self._switch = plan, node, rungs, switch
        self._addresses = {member.name: member.addresses.data.host for member in members(plan)}
        self.state = state_of(plan, node)  # before any event
        self.anything = state_of(plan, node, changes_of(plan))  # with all that events may do to delays and losses
        self._inside = {
            self._addresses[pipe.targets[0]]: self._inside_bps(pipe.targets[0]) / plan.dilation
            for pipe in plan.network.shared_links
            if not pipe.serves_many_pairs and pipe.sources == (node.name,)
        }

    @property
    def filters_packets(self) -> bool:
        """Whether the packet filter is used, now or by an event."""
        return self._uses_queues or self._rungs.partition == "iptables"

    @property
    def detours(self) -> tuple[str, ...]:
        """Addresses of peers that are reached by the switch."""
        return tuple(
            address
            for name, address in self._addresses.items()
            if name != self._node.name and pipes_between(self._plan, self._node.name, name)
        )

    def setup(self) -> str:
        """A script that shapes the link, and prints what the kernel then has.

        The interface is found by the node's address, since an engine may name it as it likes.
        """
        lines = ["set -e", self._find(), *self._packets()]
        lines += [f"ip route add {address}/32 via {self._switch} dev $dev" for address in self.detours]
        lines += tree.redirect("$dev", IFB) if self._has_ifb else []
        if batch := [*self._egress_tree(), *self._ingress_tree()]:
            lines += ["tc -batch - <<END", *batch, "END"]
        if rules := self._rules("$dev", self.state, first=True):
            lines += [f"{' '.join(RESTORE)} <<END", rules, "END"]
        return "\n".join([*lines, *self._show()])

    def change(self, device: str, before: Sequence[LinkState], after: LinkState) -> list[tuple[list[str], str]]:
        """Programs and their inputs that turn any of some states into another without touching a queue.

        Programs and not a script: they can be started ahead, and then wait for their input at no cost of time.
        """
        batch = []
        if after.uplink_bps and any(state.uplink_bps != after.uplink_bps for state in before):
            batch += tree.limits(device, after.uplink_bps, self._inside)
        if after.downlink_bps and any(state.downlink_bps != after.downlink_bps for state in before):
            behind = {self._addresses[path.source]: after.downlink_bps for path in self._netem_paths}
            batch += tree.limits(IFB, after.downlink_bps, behind)
        programs = [(["tc", "-batch", "-"], "\n".join(batch))] if batch else []
        if any(self._rules(device, state) != self._rules(device, after) for state in before):
            programs += [([*RESTORE], self._rules(device, after))]
        return programs

    def queues(self, state: LinkState) -> dict[str, object]:
        """What the delay line has to know in a state."""
        return delays.queues(state, self._addresses, self._plan.seed) if self._uses_queues else {}

    def counters(self, device: str) -> str:
        """A script that prints what the shaped devices have counted; it fails when the interface is gone."""
        return "\n".join([*_known(device), *reading.counting(self._devices)])

    def shown(self, device: str) -> str:
        """A script that prints what the kernel has now; it fails when the interface is gone."""
        return "\n".join([*_known(device), *self._show()])

    def wanted(self, state: LinkState | None = None) -> dict[tuple[str, str], float]:
        """(direction, class) -> bit/s that the kernel should have in a state, that before any event unless given."""
        state = state or self.state
        up_bps = state.uplink_bps
        wanted = {("up", tree.LINK): up_bps} if up_bps else {}
        wanted |= {("up", tree.class_of(address)): min(rate, up_bps or rate) for address, rate in self._inside.items()}
        return wanted | ({("down", tree.LINK): state.downlink_bps or tree.UNLIMITED_BPS} if self._has_ifb else {})

    def changed(self, device: str, state: LinkState, before: str, now: str) -> list[str]:
        """What the kernel has now that nobody has told it, from what it has printed before the run and now."""
        found = reading.differences(self.wanted(state), now)
        if reading.structure(before) != reading.structure(now):
            found.append("queues or filters are not those of before the run")
        rules = [line for line in self._rules(device, state, first=True).splitlines() if line.startswith("-A")]
        return found + (["the packet filter is not what it should be"] if sorted(rules) != reading.rules(now) else [])

    def pipes(self) -> dict[str, tuple[str, float]]:
        """Name of a limit of one pair -> its class on the way up and the virtual rate in force."""
        own = [
            p for p in self._plan.network.shared_links if not p.serves_many_pairs and p.sources == (self._node.name,)
        ]
        return {
            pipe.name: (
                tree.class_of(self._addresses[pipe.targets[0]]),
                min(self._inside_bps(pipe.targets[0]), self._node.uplink_bps or inf),
            )
            for pipe in own
        }

    def missing_routes(self, printed: str) -> list[str]:
        """Peers that the kernel would not reach by the switch, from what `setup` printed."""
        return [
            f"no route to {address} by the switch"
            for address in self.detours
            if not any(line.startswith(f"{address} via {self._switch} ") for line in printed.splitlines())
        ]

    def chosen(self) -> dict[str, int]:
        """What else was chosen for the link, for the record."""
        rates = {"uplink": self.state.uplink_bps, "downlink": self.state.downlink_bps}
        bursts = {f"{name}_burst_bytes": burst_bytes(rate) for name, rate in rates.items() if rate}
        count = self._segments
        return bursts | ({"packet_segments": count} if count else {})

    def _inside_bps(self, target: str) -> float:
        """The least limit of this pair alone; virtual."""
        between = self._plan.network.shared_links_between(self._node.name, target)
        return min(pipe.rate_bps for pipe in between if not pipe.serves_many_pairs)

    @property
    def _uses_queues(self) -> bool:
        return "nfqueue" in (self._rungs.delay, self._rungs.loss)

    @property
    def _down_bps(self) -> float | None:
        """Events change rates only where there are some, so nothing else needs classes: only netem's queues do."""
        return self.state.downlink_bps or (tree.UNLIMITED_BPS if self._netem_paths else None)

    @property
    def _has_ifb(self) -> bool:
        return self._down_bps is not None

    @property
    def _netem_paths(self) -> tuple[NetworkPath, ...]:
        return self.state.paths if "netem" in (self._rungs.delay, self._rungs.loss) else ()

    @property
    def _devices(self) -> list[str]:
        return (["$dev"] if self.state.uplink_bps or self._inside else []) + ([IFB] if self._has_ifb else [])

    @property
    def _segments(self) -> int | None:
        return _segments(self._plan, self._node, self._rungs)

    def _find(self) -> str:
        return f"dev=$(ip -o -4 addr show to {self._node.addresses.data.host} | awk '{{print $2}}')"

    def _packets(self) -> list[str]:
        return [f"ip link set dev $dev gso_max_segs {self._segments}"] if self._segments else []

    def _egress_tree(self) -> list[str]:
        if not self.state.uplink_bps and not self._inside:
            return []
        classes = {address: tree.class_of(address) for address in self._inside}
        lines = tree.link("$dev", self.state.uplink_bps, self._inside)
        return lines + (filters.by_address("$dev", filters.TARGET_AT, classes) if classes else [])

    def _ingress_tree(self) -> list[str]:
        if self._down_bps is None:
            return []
        if self._netem_paths:
            return self._netem_tree(self._down_bps)
        return tree.link(IFB, self._down_bps, {}, self._port)

    @property
    def _port(self) -> str:
        """Whatever packet arrives has to fit, as its sender has made it."""
        senders = (member for member in members(self._plan) if member != self._node)
        arriving = (_segments(self._plan, sender, self._rungs) or SINGLE for sender in senders)
        return tree.port(max(arriving, default=SINGLE), self._node.buffer_bytes)

    def _netem_tree(self, rate_bps: float) -> list[str]:
        """A class per source in the link, netem as its queue.

        Delays belong on the receiving side, where no sender's socket is charged for the packets that wait.
        """
        sources = {self._addresses[path.source]: path for path in self._netem_paths}
        lines = [
            tree.root(IFB, "2"),
            tree.limit(IFB, "1:", tree.LINK, rate_bps),
            tree.limit(IFB, tree.LINK, tree.REST, rate_bps, tree.OWN_SHARE),
            *tree.queue(IFB, tree.REST, self._port),
        ]
        for address, path in sources.items():
            classid = tree.class_of(address)
            lines += [tree.limit(IFB, tree.LINK, classid, rate_bps, tree.OWN_SHARE)]
            lines += tree.queue(IFB, classid, delays.netem(path, self.state.downlink_bps, self._node.buffer_bytes))
        classes = {address: tree.class_of(address) for address in sources}
        return lines + filters.by_address(IFB, filters.SOURCE_AT, classes)

    def _rules(self, device: str, state: LinkState, *, first: bool = False) -> str:
        """What the packet filter is given in a state."""
        if not self.filters_packets:
            return ""
        shown = state if self._uses_queues else state.model_copy(update={"paths": ()})
        return delays.firewall(device, shown, self._addresses, first=first)

    def _show(self) -> list[str]:
        """Classes under the names of their directions, since only the script knows how the interface is called."""
        names = {"$dev": "up", IFB: "down"}
        shown = [
            line for device in self._devices for line in (f"echo device {names[device]}", f"tc class show dev {device}")
        ]
        routes = ["ip route show"] if self.detours else []
        rules = ["iptables-nft -S"] if self.filters_packets else []
        return ["echo interface $dev", *shown, *routes, *rules, *reading.showing_structure("$dev", *self._devices)]


def _segments(plan: Plan, node: NodePlan, rungs: Rungs) -> int | None:
    """Packets that TCP may hand over as one; None leaves it to the kernel."""
    if loses(plan, node) and rungs.loss in ("netem", "nfqueue"):
        return SINGLE
    found = extremes_of(plan, node)
    return None if found is None else segments(*found)


def _known(device: str) -> list[str]:
    return ["set -e", f"dev={device}", "ip link show dev $dev > /dev/null"]
