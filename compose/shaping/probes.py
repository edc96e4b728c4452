"""Plans of the probes that test links before training.

The probes test whether links are shaped as declared. Helper containers send the probes: datagrams that fill a link
(rate), echoes (round trips) and one message. Rates and times are in wall-clock time unless stated otherwise.
"""

from collections.abc import Iterable, Iterator
from math import inf

from compose.shaping.link_rates import LinkRatesInWallTime
from compose.shaping.link_state import data_network_nodes
from compose.shaping.rate_probes import (
    MAX_CONCURRENT_BPS,
    MessageTimeProbe,
    ProbedLimit,
    ProbeFlow,
    RateProbe,
    RateProbePlan,
)
from services.cluster.links.fluid_link import PAYLOAD_SHARE
from services.cluster.network import ExpectedRoundTripTime, expected_round_trip_time
from services.plan import Plan

MAX_PAIRS_PER_PROBE = 4  # pairs of nodes that fill a shared limit together
UNDELAYED_PAIRS = 4  # pairs without a declared delay that are measured by echoes nevertheless
MAX_MESSAGE_S = 0.3
MIN_MESSAGE_BYTES = 64 << 10  # of a smaller message, bursts would pass too large a share unshaped


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
    rates = LinkRatesInWallTime(plan)
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
    rates, network = LinkRatesInWallTime(plan), plan.network
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


def _plan_link_pair_probes(rates: LinkRatesInWallTime, probed_links: set[ProbedLimit]) -> Iterator[RateProbe]:
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


def _make_per_link_probes(rates: LinkRatesInWallTime, probed_links: set[ProbedLimit]) -> Iterator[RateProbe]:
    """Yield one probe for each link that is not in `probed_links`.

    The link is filled from or to as many peers as are needed.
    """
    for name in (node.name for node in rates.nodes):
        for direction, limit_bps in (("uplink", rates.uplink_bps(name)), ("downlink", rates.downlink_bps(name))):
            if limit_bps < inf and (direction, name) not in probed_links:
                flows, sent_bps = _choose_probe_flows(rates, name, direction, limit_bps)
                yield rates.make_rate_probe(f"{name} {direction}", ((direction, name),), flows, sent_bps, limit_bps)


def _choose_probe_flows(
    rates: LinkRatesInWallTime, node_name: str, link_direction: str, link_rate_bps: float
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
    rates: LinkRatesInWallTime, flows: Iterable[ProbeFlow], link_direction: str, link_rate_bps: float
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


def _make_shared_link_probes(rates: LinkRatesInWallTime) -> Iterator[RateProbe]:
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
