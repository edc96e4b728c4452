"""Plans of the probes that test links before training.

The probes test whether links are shaped as declared. Helper containers send the probes: datagrams that fill a link
(rate), echoes (round trips) and one message. Rates and times are in wall-clock time unless stated otherwise.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import inf
from typing import TypeAlias

from compose.shaping.link_state import data_network_nodes, link_state_of
from services.cluster.links.ethernet import FRAME_BYTES
from services.cluster.links.fluid_link import PAYLOAD_SHARE
from services.cluster.network import ExpectedRoundTripTime, NetworkPath, SharedLink, expected_round_trip_time
from services.plan import NodePlan, Plan
from services.schema.component import FrozenRecord

MIN_PROBE_S, MAX_PROBE_S, MIN_PROBE_FRAMES = 0.15, 1.0, 40
MAX_CONCURRENT_BPS = 1.5e9  # total rate of concurrent probes; beyond, they would measure the host's cores
# Beyond this rate, a probe would measure the host. A check before the run decides whether such rates are allowed; the
# durations of its steps show whether it reaches them.
MAX_PROBE_BPS = 2.5e9
MAX_PAIRS_PER_PROBE = 4  # pairs of nodes that fill a shared limit together
UNDELAYED_PAIRS = 4  # pairs without a declared delay that are measured by echoes nevertheless
OVERSEND_FACTOR = 1.5  # rate sent over rate expected to arrive
MAX_MESSAGE_S = 0.3
MIN_MESSAGE_BYTES = 64 << 10  # of a smaller message, bursts would pass too large a share unshaped

ProbedLimit: TypeAlias = tuple[str, str]  # kind (uplink, downlink or pipe), and the name of the node or of the pipe
ProbeFlow: TypeAlias = tuple[str, str]  # source node, target node


class RateProbe(FrozenRecord):
    """A rate probe: test datagrams that fill one or two links.

    It has senders, receivers, and the total rate that should arrive.
    """

    name: str
    limits: tuple[ProbedLimit, ...]
    max_rates_bps: dict[ProbeFlow, float]  # flow -> highest rate that it can reach
    rate_bps: float  # total rate that should arrive
    delay_s: float = 0.0  # longest delay of its paths
    fills_limit: bool = True  # False: the senders together are slower than the limit, and all of them send

    @property
    def duration_s(self) -> float:
        """Time during which the probe counts arriving packets, in seconds."""
        return min(MAX_PROBE_S, max(MIN_PROBE_S, MIN_PROBE_FRAMES * 8 * FRAME_BYTES / self.rate_bps))

    @property
    def flows(self) -> tuple[ProbeFlow, ...]:
        """Pairs of nodes of which the first sends to the second."""
        return tuple(self.max_rates_bps)

    def send_rate_bps(self, source: str, target: str) -> float:
        """Return the highest rate at which a node sends to another node in this probe, in bit/s.

        It is 1.5 times the rate that the flow can reach. The sender chooses its packet size by this rate. Packets that
        are too large arrive in bursts, and a burst at the start or end of the measurement raises the measured rate:
        four flows of 12.5 Mbit/s, sent with packets for 50 Mbit/s, measured 6 % too much.
        """
        return self.max_rates_bps[source, target] * OVERSEND_FACTOR

    @property
    def skip_reason(self) -> str:
        """Reason why this probe is not sent.

        It is empty when the probe is sent.
        """
        if not self.flows:
            return "the paths that could fill the link lose packets"
        if self.rate_bps > (MAX_PROBE_BPS if self.fills_limit else MAX_CONCURRENT_BPS):
            return (
                f"a probe of {self.rate_bps / 1e9:.3g} Gbit/s in wall-clock time would measure this host, not the link"
            )
        return ""

    @property
    def node_names(self) -> frozenset[str]:
        """Names of all nodes that send or receive in this probe."""
        return frozenset(name for flow in self.flows for name in flow)

    def targets_by_source(self) -> dict[str, tuple[str, ...]]:
        """Return the receiving nodes of each sending node, as a mapping."""
        targets_by_source: defaultdict[str, list[str]] = defaultdict(list)
        for source, target in self.flows:
            targets_by_source[source].append(target)
        return {source: tuple(targets) for source, targets in targets_by_source.items()}

    def sources_by_target(self) -> dict[str, tuple[str, ...]]:
        """Return the sending nodes of each receiving node, as a mapping."""
        sources_by_target: defaultdict[str, list[str]] = defaultdict(list)
        for source, target in self.flows:
            sources_by_target[target].append(source)
        return {target: tuple(sources) for target, sources in sources_by_target.items()}

    def describe_rate_mismatch(self, achieved_bps: float, time_dilation: float) -> str:
        """Return a message that compares the expected with the achieved rate of the probe.

        Rates are in Mbit per second of virtual time.
        """
        expected_mbps, achieved_mbps = self.rate_bps * time_dilation / 1e6, achieved_bps * time_dilation / 1e6
        error = achieved_mbps / expected_mbps - 1
        expected = f"declared {expected_mbps:.4g} Mbit/s"
        if not self.fills_limit:
            expected = f"its peers can send {expected_mbps:.4g} Mbit/s in total"
        return f"{expected}, but {achieved_mbps:.4g} Mbit/s arrived in the probe before the run ({error:+.1%})"


class MessageTimeProbe(FrozenRecord):
    """A test message from one node to another, and the time that the message should take."""

    source: str
    target: str
    size_bytes: int
    expected_s: float


class RateProbePlan(FrozenRecord):
    """Rate probes of a trial, and the rate limits that are not probed.

    A reason is given for each limit that is not probed.
    """

    probes: tuple[RateProbe, ...]
    skipped: tuple[tuple[str, str, str], ...] = ()  # kind and name of the limit, reason


def expected_round_trip_times(plan: Plan) -> dict[str, dict[str, ExpectedRoundTripTime]]:
    """Return the round trips between nodes that are to be measured by echoes.

    The result maps node -> peer -> expected round trip. Every pair with a declared delay is measured once, and a few
    pairs without one.
    """
    names = [node.name for node in data_network_nodes(plan)]
    round_trips: dict[str, dict[str, ExpectedRoundTripTime]] = {}
    disjoint_pairs = list(zip(names[::2], names[1::2], strict=False))
    sampled_pairs = set(disjoint_pairs[:: max(1, len(disjoint_pairs) // UNDELAYED_PAIRS)][:UNDELAYED_PAIRS])
    for k, name in enumerate(names):
        for peer in names[k + 1 :]:
            declared = expected_round_trip_time(plan.network, name, peer)
            if declared.mean_s or (name, peer) in sampled_pairs:
                round_trips.setdefault(name, {})[peer] = declared
    return round_trips


def plan_rate_probes(plan: Plan) -> RateProbePlan:
    """Plan the rate probes of a trial.

    There are probes for every uplink, downlink and shared link that the nodes can fill and this host can carry.
    """
    rates = _LinkRatesInWallTime(plan)
    probed: set[ProbedLimit] = set()
    probes = [
        *_plan_link_pair_probes(rates, probed),
        *_make_per_link_probes(rates, probed),
        *_make_shared_link_probes(rates),
    ]
    skipped = [(*limit, probe.skip_reason) for probe in probes for limit in probe.limits if probe.skip_reason]
    return RateProbePlan(probes=tuple(probe for probe in probes if not probe.skip_reason), skipped=tuple(skipped))


def group_parallel_probes(rate_probes: Iterable[RateProbe]) -> tuple[tuple[RateProbe, ...], ...]:
    """Group the probes that may run at the same time.

    Such probes share no node, and this host carries their total rate.
    """
    groups: list[list[RateProbe]] = []
    for probe in sorted(rate_probes, key=lambda probe: -probe.duration_s):
        for group in groups:
            is_disjoint = all(probe.node_names.isdisjoint(other.node_names) for other in group)
            if is_disjoint and sum(other.rate_bps for other in (*group, probe)) <= MAX_CONCURRENT_BPS:
                group.append(probe)
                break
        else:
            groups.append([probe])
    return tuple(map(tuple, groups))


def plan_message_time_probe(plan: Plan) -> MessageTimeProbe | None:
    """Plan one test message of the size that the workload sends.

    It is sent over a path without delay and loss.

    Returns:
        The message, shortened if it would take longer than `MAX_MESSAGE_S`. None if no path is suitable, or if the
        message would be too short to be shaped.
    """
    rates, network = _LinkRatesInWallTime(plan), plan.network
    workload_bytes = plan.vector_bytes // max(1, len(plan.shard_owners) or plan.workers)
    for source, target in rates.ordered_node_pairs():
        rate_bps = rates.flow_rate_bps(source.name, target.name)
        forth, back = (network.path_between(source.name, target.name), network.path_between(target.name, source.name))
        if rate_bps == inf or forth.losses or back.losses or forth.delay_s or back.delay_s:
            continue
        size_bytes = min(workload_bytes, int(rate_bps / 8 * PAYLOAD_SHARE * MAX_MESSAGE_S))
        if size_bytes < MIN_MESSAGE_BYTES:
            return None
        expected_s = size_bytes * 8 / (rate_bps * PAYLOAD_SHARE)
        return MessageTimeProbe(source=source.name, target=target.name, size_bytes=size_bytes, expected_s=expected_s)
    return None


class _LinkRatesInWallTime:
    """Rates of links, and rates between pairs of nodes, in bit/s of wall time."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.nodes = data_network_nodes(plan)
        self._states = {node.name: link_state_of(plan, node) for node in self.nodes}

    def ordered_node_pairs(self) -> Iterator[tuple[NodePlan, NodePlan]]:
        """Yield all ordered pairs of nodes.

        The pairs of each node with its successor come first, so that each node gets a different partner.
        """
        for distance in range(1, len(self.nodes)):
            for k, node in enumerate(self.nodes):
                yield node, self.nodes[(k + distance) % len(self.nodes)]

    def uplink_bps(self, node_name: str) -> float:
        """Return the uplink rate of a node.

        It is inf if the uplink is not shaped.
        """
        return self._states[node_name].uplink_bps or inf

    def downlink_bps(self, node_name: str) -> float:
        """Return the downlink rate of a node.

        It is inf if the downlink is not shaped.
        """
        return self._states[node_name].downlink_bps or inf

    def rate_limits_between(self, source: str, target: str) -> tuple[SharedLink, ...]:
        """Return the rate limits on the path between two nodes.

        The limits of the nodes' own links are left out.
        """
        return self.plan.network.shared_links_between(source, target)

    def min_limit_between_bps(self, source: str, target: str) -> float:
        """Return the lowest rate of the shared links between two nodes.

        Access links are left out. The rate is infinite if there are none.
        """
        limits = self.rate_limits_between(source, target)
        return min((limit.rate_bps / self.plan.dilation for limit in limits), default=inf)

    def flow_rate_bps(self, source: str, target: str) -> float:
        """Return the highest rate that a single flow between two nodes can reach.

        It is the lowest rate limit on the path of the flow.
        """
        return min(self.uplink_bps(source), self.min_limit_between_bps(source, target), self.downlink_bps(target))

    def find_max_path_delay_wall_s(self, probe_flows: Iterable[ProbeFlow]) -> float:
        """Return the longest delay of the network paths of several flows, in seconds of wall time."""
        paths: list[NetworkPath] = [self.plan.network.path_between(*flow) for flow in probe_flows]
        return max((path.delay_s for path in paths), default=0.0) * self.plan.dilation

    def has_losses(self, probe_flows: Iterable[ProbeFlow]) -> bool:
        """Return whether packet loss is declared for the path of any flow.

        A probe could not measure the rate of such a flow.
        """
        return any(self.plan.network.path_between(*flow).losses for flow in probe_flows)

    def make_rate_probe(
        self,
        probe_name: str,
        probed_links: tuple[ProbedLimit, ...],
        probe_flows: tuple[ProbeFlow, ...],
        total_send_rate_bps: float,
        wall_time_link_rate_bps: float,
    ) -> RateProbe:
        """Return a rate probe whose flows send `total_send_rate_bps` through a link.

        The link has the rate `wall_time_link_rate_bps`.
        """
        rate_bps = min(total_send_rate_bps, wall_time_link_rate_bps)
        return RateProbe(
            name=probe_name,
            limits=probed_links,
            max_rates_bps={flow: min(rate_bps, self.flow_rate_bps(*flow)) for flow in probe_flows},
            rate_bps=rate_bps,
            delay_s=self.find_max_path_delay_wall_s(probe_flows),
            fills_limit=total_send_rate_bps >= wall_time_link_rate_bps,
        )


def _plan_link_pair_probes(rates: _LinkRatesInWallTime, probed_links: set[ProbedLimit]) -> Iterator[RateProbe]:
    """Yield one probe for each pair of an uplink and a downlink with equal rates.

    No link on the path between the two is slower. One probe tests both links. All tested links are added to
    `probed_links`.
    """
    for source, target in rates.ordered_node_pairs():
        limits, flows = (("uplink", source.name), ("downlink", target.name)), ((source.name, target.name),)
        rate_bps = rates.uplink_bps(source.name)
        has_equal_rates = rate_bps == rates.downlink_bps(target.name) < inf
        is_unlimited_between = rates.min_limit_between_bps(source.name, target.name) > rate_bps
        if has_equal_rates and is_unlimited_between and not probed_links & set(limits) and not rates.has_losses(flows):
            probed_links |= set(limits)
            yield rates.make_rate_probe(f"{source.name} to {target.name}", limits, flows, rate_bps, rate_bps)


def _make_per_link_probes(rates: _LinkRatesInWallTime, probed_links: set[ProbedLimit]) -> Iterator[RateProbe]:
    """Yield one probe for each link that is not in `probed_links`.

    The link is filled from or to as many peers as are needed.
    """
    for name in (node.name for node in rates.nodes):
        for direction, limit_bps in (("uplink", rates.uplink_bps(name)), ("downlink", rates.downlink_bps(name))):
            if limit_bps < inf and (direction, name) not in probed_links:
                flows, sent_bps = _choose_probe_flows(rates, name, direction, limit_bps)
                yield rates.make_rate_probe(f"{name} {direction}", ((direction, name),), flows, sent_bps, limit_bps)


def _choose_probe_flows(
    rates: _LinkRatesInWallTime, node_name: str, link_direction: str, link_rate_bps: float
) -> tuple[tuple[ProbeFlow, ...], float]:
    """Return the flows that send the most through a link, and their total rate in bit/s.

    Only flows without losses are used, preferably those that pass no shared link. No flows are returned if flows with
    losses would send more.
    """
    peers = [node.name for node in rates.nodes if node.name != node_name]
    flows = [(node_name, peer) if link_direction == "uplink" else (peer, node_name) for peer in peers]
    lossless = [flow for flow in flows if not rates.has_losses([flow])]
    unshared = [
        flow for flow in lossless if not any(link.serves_many_node_pairs for link in rates.rate_limits_between(*flow))
    ]
    for candidates in (unshared, lossless):
        chosen, sent_bps = _choose_saturating_flows(rates, candidates, link_direction, link_rate_bps)
        if sent_bps >= link_rate_bps:
            return chosen, sent_bps
    _, most_bps = _choose_saturating_flows(rates, flows, link_direction, link_rate_bps)
    return (chosen, sent_bps) if most_bps == sent_bps else ((), most_bps)


def _choose_saturating_flows(
    rates: _LinkRatesInWallTime, flows: Iterable[ProbeFlow], link_direction: str, link_rate_bps: float
) -> tuple[tuple[ProbeFlow, ...], float]:
    """Choose the fastest flows whose rates add up to `link_rate_bps`.

    A flow is a pair (sender, receiver). Return them and their total bit/s. A limit that several flows share counts
    once.
    """
    left_bps: dict[str, float] = {}  # shared limit -> rate that the chosen flows leave

    def find_peer_link_bps(probe_flow: ProbeFlow) -> float:
        return rates.downlink_bps(probe_flow[1]) if link_direction == "uplink" else rates.uplink_bps(probe_flow[0])

    chosen: list[ProbeFlow] = []
    sent_bps = 0.0
    for flow in sorted(
        flows, key=lambda flow: min(find_peer_link_bps(flow), rates.min_limit_between_bps(*flow)), reverse=True
    ):
        limits = rates.rate_limits_between(*flow)
        path_bps = {link.name: left_bps.get(link.name, link.rate_bps / rates.plan.dilation) for link in limits}
        flow_bps = min(find_peer_link_bps(flow), link_rate_bps, *path_bps.values())
        if sent_bps >= link_rate_bps or not flow_bps:
            continue
        left_bps |= {name: rate_bps - flow_bps for name, rate_bps in path_bps.items()}
        chosen.append(flow)
        sent_bps += flow_bps
    return tuple(chosen), sent_bps


def _make_shared_link_probes(rates: _LinkRatesInWallTime) -> Iterator[RateProbe]:
    """Yield one rate probe for each shared link that nodes can fill.

    Several pairs of nodes fill the link by sending at the same time.
    """
    dilation = rates.plan.dilation
    for limit in rates.plan.network.shared_links:
        limit_bps, free = limit.rate_bps / dilation, set(limit.sources) | set(limit.targets)
        chosen: list[ProbeFlow] = []
        possible_bps = 0.0
        for source in limit.sources:
            target = next((name for name in limit.targets if name in free and name != source), None)
            if source in free and target and possible_bps < limit_bps and len(chosen) < MAX_PAIRS_PER_PROBE:
                other_bps = [p.rate_bps / dilation for p in rates.rate_limits_between(source, target) if p != limit]
                possible_bps += min(rates.uplink_bps(source), rates.downlink_bps(target), *other_bps, inf)
                chosen.append((source, target))
                free -= {source, target}
        other_limits = {p.name: p.rate_bps for flow in chosen for p in rates.rate_limits_between(*flow) if p != limit}
        is_filled = possible_bps >= limit_bps and all(rate_bps >= limit.rate_bps for rate_bps in other_limits.values())
        if is_filled:
            flows = () if rates.has_losses(chosen) else tuple(chosen)
            yield rates.make_rate_probe(limit.name, (("pipe", limit.name),), flows, limit_bps, limit_bps)
