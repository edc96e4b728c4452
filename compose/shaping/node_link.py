"""Scripts that shape the link of a node, and change the link at events.

They also print the link's state and counters. They run inside the network namespace of the node.
"""

from collections.abc import Sequence
from math import inf

from compose.shaping import delays, filters, htb_tree, tc_output
from compose.shaping.bursts import htb_burst_bytes, max_gso_segments
from compose.shaping.htb_tree import DEFAULT_CLASS, IFB_DEVICE, LINK_CLASS
from compose.shaping.link_state import (
    LinkState,
    data_network_nodes,
    find_send_rate_range_bps,
    link_changes,
    link_state_of,
    may_lose_packets,
)
from compose.shaping.mechanisms import ChosenMechanisms
from compose.shaping.shared_link import shared_links_between
from services.cluster.network import NetworkPath
from services.plan import NodePlan, Plan

RESTORE_COMMAND = ("iptables-nft-restore", "--noflush")
SINGLE_SEGMENT = 1  # segments per packet where packets may be lost, so that one loss is the loss of one segment


class NodeLinkScripts:
    """Scripts for shaping one node's link.

    They are computed from the trial plan and this kernel's shaping mechanisms.
    """

    def __init__(self, plan: Plan, node: NodePlan, mechanisms: ChosenMechanisms, switch_address: str | None) -> None:
        """Compute the states and the rate limits of one node's link from the trial plan.

        The rate limits are those to single peers.

        Args:
            plan: plan of the trial.
            node: node whose link is shaped.
            mechanisms: shaping mechanism chosen for each link property.
            switch_address: data address of the network switch that forwards to other racks or regions; None if absent.
        """
        self._plan, self._node, self._mechanisms, self._switch_address = plan, node, mechanisms, switch_address
        self._addresses = {member.name: member.addresses.data.host for member in data_network_nodes(plan)}
        self.initial_state = link_state_of(plan, node)  # before any event
        self.state_with_all_changes = link_state_of(plan, node, link_changes(plan))  # with every path that events touch
        # address of each peer with a class -> its own limit, or None
        self._peer_classes_bps: dict[str, float | None] = dict.fromkeys(self._peers_sharing_uplink())
        self._peer_classes_bps |= {
            self._addresses[limit.targets[0]]: self._peer_rate_limit_bps(limit.targets[0]) / plan.dilation
            for limit in plan.network.shared_links
            if not limit.serves_many_node_pairs and limit.sources == (node.name,)
        }

    @property
    def needs_iptables_rules(self) -> bool:
        """Return whether the node needs packet filter rules.

        Rules are needed at the start of the trial or for an event.
        """
        return self._uses_nfqueue or self._mechanisms.partition == "iptables"

    @property
    def routed_peer_addresses(self) -> tuple[str, ...]:
        """Addresses of the peers that the node reaches through the network switch."""
        return tuple(
            address
            for name, address in self._addresses.items()
            if name != self._node.name and shared_links_between(self._plan, self._node.name, name)
        )

    def make_link_setup_script(self) -> str:
        """Return a shell script that shapes the node's link and then prints the link's state in the kernel.

        The script finds the interface by the node's address, since each engine names it differently.
        """
        lines = ["set -e", self._make_interface_lookup(), *self._limit_gso_commands()]
        lines += [f"ip route add {peer}/32 via {self._switch_address} dev $dev" for peer in self.routed_peer_addresses]
        lines += htb_tree.ingress_redirect_commands("$dev") if self._shapes_downlink else []
        if batch := [*self._uplink_tc_lines(), *self._downlink_tc_lines()]:
            lines += ["tc -batch - <<END", *batch, "END"]
        if rules := self._packet_filter_rules("$dev", self.initial_state, include_jumps=True):
            lines += [f"{' '.join(RESTORE_COMMAND)} <<END", rules, "END"]
        return "\n".join([*lines, *self._make_state_dump_lines()])

    def make_link_change_commands(
        self, interface: str, possible_old_states: Sequence[LinkState], new_state: LinkState
    ) -> list[tuple[list[str], str]]:
        """Return the programs that change the node's link to `new_state`.

        Each program has its input. No queue is replaced. They are programs instead of a script so that they can be
        started ahead of time and then wait for their input.

        Args:
            interface: interface of the node on the data network.
            possible_old_states: states in which the link may be when the programs run.
            new_state: state of the link afterwards.
        """
        batch = []
        if new_state.uplink_bps and any(state.uplink_bps != new_state.uplink_bps for state in possible_old_states):
            batch += htb_tree.link_htb_class_lines(interface, new_state.uplink_bps, self._peer_classes_bps)
        if new_state.downlink_bps and any(
            state.downlink_bps != new_state.downlink_bps for state in possible_old_states
        ):
            # Each source has a class for its netem queue, but no limit of its own.
            sources = dict.fromkeys(self._addresses[path.source] for path in self._paths_via_netem)
            batch += htb_tree.link_htb_class_lines(IFB_DEVICE, new_state.downlink_bps, sources)
        programs = [(["tc", "-batch", "-"], "\n".join(batch))] if batch else []
        next_rules = self._packet_filter_rules(interface, new_state)
        if any(self._packet_filter_rules(interface, state) != next_rules for state in possible_old_states):
            programs += [([*RESTORE_COMMAND], next_rules)]
        return programs

    def make_nfqueue_delays(self, link_state: LinkState) -> dict[str, object]:
        """Return the settings of the process that delays packets from NFQUEUE.

        The result maps queue number -> network path and seed.
        """
        return delays.make_nfqueue_delays(link_state, self._addresses, self._plan.seed) if self._uses_nfqueue else {}

    def queue_counters_script(self, interface: str) -> str:
        """Return a script that prints the packet counters of the shaped network devices.

        It fails if the interface is gone.
        """
        return "\n".join([*_make_interface_check(interface), *tc_output.counter_script_lines(self._shaped_devices)])

    def state_dump_script(self, interface: str) -> str:
        """Return a script that prints the link's current state in the kernel.

        It fails if the interface is gone.
        """
        return "\n".join([*_make_interface_check(interface), *self._make_state_dump_lines()])

    def expected_rates_bps(self, link_state: LinkState | None = None) -> dict[tuple[str, str], float]:
        """Return the rates that the kernel should enforce on the node's link.

        The result maps (direction, class) -> bit/s in wall-clock time.

        Args:
            link_state: state of the link; by default the state before any event.
        """
        link_state = link_state or self.initial_state
        uplink_bps = link_state.uplink_bps
        rates_bps = {("up", LINK_CLASS): uplink_bps} if uplink_bps else {}
        for address, limit_bps in self._peer_classes_bps.items():
            rates_bps["up", htb_tree.peer_class_id(address)] = htb_tree.peer_rate_bps(uplink_bps or inf, limit_bps)
        if self._shapes_downlink:
            rates_bps["down", LINK_CLASS] = link_state.downlink_bps or htb_tree.UNLIMITED_BPS
        return rates_bps

    def find_external_link_changes(
        self, interface: str, link_state: LinkState, tc_output_before: str, tc_output_now: str
    ) -> list[str]:
        """Return a description of each kernel setting of the link that another program has changed.

        Changes during the run count.

        Args:
            interface: interface of the node on the data network.
            link_state: state that the link should have now.
            tc_output_before: output of the setup script.
            tc_output_now: output of the script that prints the link's state.
        """
        differences = tc_output.htb_rate_differences(self.expected_rates_bps(link_state), tc_output_now)
        if tc_output.parse_qdiscs_and_filters(tc_output_before) != tc_output.parse_qdiscs_and_filters(tc_output_now):
            differences.append("queues or filters differ from those before the run")
        rule_lines = self._packet_filter_rules(interface, link_state, include_jumps=True).splitlines()
        expected_rules = sorted(line for line in rule_lines if line.startswith("-A"))
        if expected_rules != tc_output.parse_packet_filter_rules(tc_output_now):
            differences.append("the rules of the packet filter differ from those that the plan needs")
        return differences

    def find_peer_htb_limits(self) -> dict[str, tuple[str, float]]:
        """Return the rate limits from this node to single peers.

        The result maps limit name -> HTB class, and rate in bits per virtual second.
        """
        links = self._plan.network.shared_links
        own_limits = [link for link in links if not link.serves_many_node_pairs and link.sources == (self._node.name,)]
        return {
            limit.name: (
                htb_tree.peer_class_id(self._addresses[limit.targets[0]]),
                min(self._peer_rate_limit_bps(limit.targets[0]), self._node.uplink_bps or inf),
            )
            for limit in own_limits
        }

    def missing_routes(self, setup_output: str) -> list[str]:
        """Return a message for each peer to which the kernel has no route.

        The routes in question lead through the network switch.
        """
        return [
            f"no route to {address} through the network switch"
            for address in self.routed_peer_addresses
            if not any(line.startswith(f"{address} via {self._switch_address} ") for line in setup_output.splitlines())
        ]

    def list_burst_and_segment_sizes(self) -> dict[str, int]:
        """Return the link's burst sizes in bytes and its segments per packet.

        The trial's status record contains these values.
        """
        rates = {"uplink": self.initial_state.uplink_bps, "downlink": self.initial_state.downlink_bps}
        bursts = {f"{direction}_burst_bytes": htb_burst_bytes(rate) for direction, rate in rates.items() if rate}
        segment_count = self._max_gso_segments
        return bursts | ({"packet_segments": segment_count} if segment_count else {})

    def _peers_sharing_uplink(self) -> list[str]:
        """Return the addresses of the peers that take turns on the node's limited uplink.

        The list is empty if the uplink has no limit or only one peer. In a single queue, TCP serves some peers before
        others.
        """
        peers = [address for name, address in self._addresses.items() if name != self._node.name]
        return peers if self.initial_state.uplink_bps and len(peers) > 1 else []

    def _peer_rate_limit_bps(self, peer_name: str) -> float:
        """Return the lowest rate limit that is declared from this node to one peer.

        The rate is in bit/s of virtual time.
        """
        limits = self._plan.network.shared_links_between(self._node.name, peer_name)
        return min(limit.rate_bps for limit in limits if not limit.serves_many_node_pairs)

    @property
    def _uses_nfqueue(self) -> bool:
        return "nfqueue" in (self._mechanisms.delay, self._mechanisms.loss)

    @property
    def _downlink_class_rate_bps(self) -> float | None:
        """Rate of the HTB classes for arriving packets, in bit/s.

        None if arriving packets need no classes. Events change only rates that are declared, so classes are needed for
        a declared downlink or for netem queues.
        """
        return self.initial_state.downlink_bps or (htb_tree.UNLIMITED_BPS if self._paths_via_netem else None)

    @property
    def _shapes_downlink(self) -> bool:
        return self._downlink_class_rate_bps is not None

    @property
    def _paths_via_netem(self) -> tuple[NetworkPath, ...]:
        return self.initial_state.paths if "netem" in (self._mechanisms.delay, self._mechanisms.loss) else ()

    @property
    def _shaped_devices(self) -> list[str]:
        return (["$dev"] if self.initial_state.uplink_bps or self._peer_classes_bps else []) + (
            [IFB_DEVICE] if self._shapes_downlink else []
        )

    @property
    def _max_gso_segments(self) -> int | None:
        return _max_gso_segments_of(self._plan, self._node, self._mechanisms)

    def _make_interface_lookup(self) -> str:
        return f"dev=$(ip -o -4 addr show to {self._node.addresses.data.host} | awk '{{print $2}}')"

    def _limit_gso_commands(self) -> list[str]:
        return [f"ip link set dev $dev gso_max_segs {self._max_gso_segments}"] if self._max_gso_segments else []

    def _uplink_tc_lines(self) -> list[str]:
        if not self.initial_state.uplink_bps and not self._peer_classes_bps:
            return []
        classes = {address: htb_tree.peer_class_id(address) for address in self._peer_classes_bps}
        lines = htb_tree.link_htb_tree_lines("$dev", self.initial_state.uplink_bps, self._peer_classes_bps)
        return lines + (filters.tc_filter_lines_by_address("$dev", filters.TARGET_OFFSET, classes) if classes else [])

    def _downlink_tc_lines(self) -> list[str]:
        if self._downlink_class_rate_bps is None:
            return []
        if self._paths_via_netem:
            return self._netem_tc_lines(self._downlink_class_rate_bps)
        return htb_tree.link_htb_tree_lines(IFB_DEVICE, self._downlink_class_rate_bps, {}, self._downlink_qdisc)

    @property
    def _downlink_qdisc(self) -> str:
        """Queue of the downlink, in the syntax of `tc`.

        The queue is large enough for the largest packet of any sender.
        """
        senders = (member for member in data_network_nodes(self._plan) if member != self._node)
        segments = (_max_gso_segments_of(self._plan, sender, self._mechanisms) or SINGLE_SEGMENT for sender in senders)
        return htb_tree.link_buffer_qdisc(max(segments, default=SINGLE_SEGMENT), self._node.buffer_bytes)

    def _netem_tc_lines(self, rate_bps: float) -> list[str]:
        """Return lines for `tc -batch` that add netem queues for arriving packets.

        There is one HTB class with a netem queue per source. Packets are delayed on the receiving side, where waiting
        packets do not count against a sender's socket.
        """
        sources = {self._addresses[path.source]: path for path in self._paths_via_netem}
        lines = [
            htb_tree.htb_root_line(IFB_DEVICE, "2"),
            *htb_tree.link_htb_class_lines(IFB_DEVICE, rate_bps, dict.fromkeys(sources), "add"),
            *htb_tree.make_queue_tc_lines(IFB_DEVICE, DEFAULT_CLASS, self._downlink_qdisc),
        ]
        for address, path in sources.items():
            class_id = htb_tree.peer_class_id(address)
            qdisc = delays.netem_qdisc(path, self.initial_state.downlink_bps, self._node.buffer_bytes)
            lines += htb_tree.make_queue_tc_lines(IFB_DEVICE, class_id, qdisc)
        classes = {address: htb_tree.peer_class_id(address) for address in sources}
        return lines + filters.tc_filter_lines_by_address(IFB_DEVICE, filters.SOURCE_OFFSET, classes)

    def _packet_filter_rules(self, interface: str, link_state: LinkState, *, include_jumps: bool = False) -> str:
        """Return the packet filter rules for a given state of the link.

        The result is empty if the node needs no packet filter.
        """
        if not self.needs_iptables_rules:
            return ""
        filtered_state = link_state if self._uses_nfqueue else link_state.model_copy(update={"paths": ()})
        return delays.make_iptables_rules(interface, filtered_state, self._addresses, include_jumps=include_jumps)

    def _make_state_dump_lines(self) -> list[str]:
        """Return script lines that print the state of the node's link in the kernel.

        The state consists of the interface, HTB classes, routes and packet filter rules. Classes are printed under the
        name of their direction, since only the script knows the name of the interface.
        """
        directions = {"$dev": "up", IFB_DEVICE: "down"}
        classes = [
            line
            for device in self._shaped_devices
            for line in (f"echo device {directions[device]}", f"tc class show dev {device}")
        ]
        routes = ["ip route show"] if self.routed_peer_addresses else []
        rules = ["iptables-nft -S"] if self.needs_iptables_rules else []
        queues_and_filters = tc_output.make_tc_show_lines("$dev", *self._shaped_devices)
        return ["echo interface $dev", *classes, *routes, *rules, *queues_and_filters]


def _max_gso_segments_of(plan: Plan, node: NodePlan, mechanisms: ChosenMechanisms) -> int | None:
    """Return how many segments TCP may pass to the kernel as one packet.

    None leaves the kernel's default.
    """
    if may_lose_packets(plan, node) and mechanisms.loss in ("netem", "nfqueue"):
        return SINGLE_SEGMENT
    rate_range = find_send_rate_range_bps(plan, node)
    return None if rate_range is None else max_gso_segments(*rate_range)


def _make_interface_check(interface_name: str) -> list[str]:
    """Return script lines that set `$dev` to the name of the network interface.

    The lines end the script if the interface is gone.
    """
    return ["set -e", f"dev={interface_name}", "ip link show dev $dev > /dev/null"]
