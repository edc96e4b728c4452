"""Link probes: measurements of links before training.

Helper containers measure round trips, rates and the time of one message while all nodes wait. A *flood* is a stream of
UDP datagrams that fills a link, an *echo* is a datagram that the peer sends back.
"""

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from statistics import median
from typing import Any, TypeAlias

from compose.engines.containers.link_enforcement import LinkShaper
from compose.engines.containers.repeated_measurement import is_conclusive, repeat_until_conclusive, sleep_between_tries
from compose.runs.trials.node_runner import LinkProbeFailed, TrialFailed
from compose.shaping.link_state import data_network_nodes
from compose.shaping.probes import (
    expected_round_trip_times,
    group_parallel_probes,
    plan_message_time_probe,
    plan_rate_probes,
)
from compose.shaping.rate_probes import RateProbe
from services.cluster.links.round_trips import ECHOES_PER_TRY, ExpectedRoundTripTime
from services.plan.trial_outcome import LinkShapingRecord, MeasuredLinkValue

ECHO_GAP_S = 0.02
REPLY_TIMEOUT_S = 60.0
FLOOD_LEAD_S = 0.08  # until all helpers have received the request to send or to count
FLOOD_WARM_UP_S = 0.05  # until the token buckets of the shapers are empty
QUEUE_DRAIN_S = 0.1  # until the queues are empty: packets of probes must not be counted as packets of training
MAX_REPORTED_PAIRS = 3
UNSHAPED_TIME_RATIO = 0.75  # a message that takes less than this share of its declared time was not shaped
BUSY_HOST_HINT = "if this host was busy, run again or raise `dilation`"

PeerPair: TypeAlias = tuple[str, str]  # a node and its peer


def probe_links(shaper: LinkShaper, thread_pool: ThreadPoolExecutor) -> dict[str, LinkShapingRecord]:
    """Measure round trips, link rates and the time of one message, and return the records of all links.

    Returns:
        Records with the measured values, by node or network switch; empty when there is nothing to measure.

    Raises:
        TrialFailed: after several tries, a value is further off than the plan's thresholds (`fidelity`) allow.
    """
    node_addresses = {node.name: node.addresses.data.host for node in data_network_nodes(shaper.plan)}
    if len(node_addresses) < 2 or not _declares_rate_or_delay(shaper):  # noqa: PLR2004 - a single node has no peer
        return {}
    hosts = node_addresses.items()
    _await_helper_replies(
        thread_pool.submit(shaper.helpers[name].request, "listen", address=host) for name, host in hosts
    )
    try:
        _probe_round_trips(shaper, node_addresses)
        _probe_rates(shaper, node_addresses)
        _measure_message_time(shaper, node_addresses)
    finally:
        _await_helper_replies(
            thread_pool.submit(shaper.helpers[name].request, "stop_receiver") for name in node_addresses
        )
    time.sleep(QUEUE_DRAIN_S)
    return {name: shaper.records[name] for name in shaper.link_names}


def _declares_rate_or_delay(shaper: LinkShaper) -> bool:
    """Return whether the trial plan declares a link rate or a delay.

    Probes measure these two properties.
    """
    return any(mechanism != "none" for mechanism in (shaper.mechanisms.rate, shaper.mechanisms.delay))


def _probe_round_trips(shaper: LinkShaper, node_addresses: dict[str, str]) -> None:
    """Measure and record the round-trip times between nodes.

    All node pairs with a declared delay are measured, and a few pairs without delay.

    Raises:
        LinkProbeFailed: the round trips of some pairs differ from the declared ones by more than the plan allows.
    """
    if shaper.mechanisms.delay == "transport":  # echoes are sent by helpers and do not pass the nodes' transport
        return
    declared, tries = expected_round_trip_times(shaper.plan), _measure_round_trips(shaper, node_addresses)
    measured_s = {
        (name, peer): median(declared[name][peer].estimate_round_trip_s(echoes) for echoes in echoes_of_tries)
        for (name, peer), echoes_of_tries in tries.items()
    }
    failures = [
        declared[name][peer].mismatch_message(name, peer, round_trip_s)
        for (name, peer), round_trip_s in measured_s.items()
        if not _is_round_trip_accepted(shaper, declared[name][peer], round_trip_s)
    ]
    if failures:
        examples = "; ".join(failures[:MAX_REPORTED_PAIRS])
        raise LinkProbeFailed(
            "measured round-trip times differ from the declared times by more than `fidelity.round_trip` allows: "
            f"{examples}; {BUSY_HOST_HINT}"
        )
    for name, round_trips_of_node in declared.items():
        record = {
            peer: MeasuredLinkValue(
                declared=round_trip.mean_s,
                achieved=measured_s[name, peer],
                tries=tuple(round(echo, 7) for echoes in tries[name, peer] for echo in echoes),
            )
            for peer, round_trip in round_trips_of_node.items()
        }
        shaper.update_link_record(name, round_trip_s=record)


def _is_round_trip_accepted(shaper: LinkShaper, declared_round_trip: ExpectedRoundTripTime, measured_s: float) -> bool:
    tolerance_s = declared_round_trip.tolerance_s(shaper.plan.fidelity.round_trip, shaper.plan.dilation)
    return abs(measured_s - declared_round_trip.mean_s) <= tolerance_s


def _measure_round_trips(shaper: LinkShaper, node_addresses: dict[str, str]) -> dict[PeerPair, list[list[float]]]:
    """Measure round-trip times between nodes, in virtual seconds (of the emulated cluster).

    The result maps node pair -> for each try, its echo times. A pair whose first try is accepted has one try; the
    others are measured until their median is conclusive.
    """
    declared = expected_round_trip_times(shaper.plan)
    tries: dict[PeerPair, list[list[float]]] = {(name, peer): [] for name, peers in declared.items() for peer in peers}
    open_pairs, tries_per_round = set(tries), 1

    def needs_more_rtt_probes(node_and_peer_names: PeerPair) -> bool:
        round_trip = declared[node_and_peer_names[0]][node_and_peer_names[1]]
        return not is_conclusive(
            [round_trip.estimate_round_trip_s(echoes) for echoes in tries[node_and_peer_names]],
            lambda measured_s: _is_round_trip_accepted(shaper, round_trip, measured_s),
        )

    while open_pairs:
        for _ in range(tries_per_round):
            for pair, echoes in _measure_echo_round_trips(shaper, node_addresses, open_pairs).items():
                tries[pair].append(echoes)
        open_pairs, tries_per_round = set(filter(needs_more_rtt_probes, open_pairs)), 2
        if open_pairs:
            sleep_between_tries(max(len(tries[pair]) for pair in open_pairs))
    return tries


def _measure_echo_round_trips(
    shaper: LinkShaper, address_by_node: dict[str, str], node_pairs: set[PeerPair]
) -> dict[PeerPair, list[float]]:
    """Send several echo datagrams between each pair of nodes, and return the round-trip times.

    Return virtual round-trip times (wall time / dilation). The nodes send one after the other; at the same time, they
    would wait for the host's cores.
    """
    round_trips_s = {}
    for name in sorted({name for name, _ in node_pairs}):
        peer_addresses = {peer: address_by_node[peer] for source, peer in sorted(node_pairs) if source == name}
        reply = shaper.helpers[name].request("echoes", peers=peer_addresses, count=ECHOES_PER_TRY, gap_s=ECHO_GAP_S)
        for peer, wall_seconds in reply["round_trips_s"].items():
            round_trips_s[name, peer] = [seconds / shaper.plan.dilation for seconds in wall_seconds]
    return round_trips_s


def _probe_rates(shaper: LinkShaper, node_addresses: dict[str, str]) -> None:
    """Measure and record link rates with streams of UDP datagrams that fill the links.

    Such a stream is called a flood. Floods through different nodes are sent at the same time, as many as the host can
    carry. A flood that fails is repeated alone.

    Raises:
        LinkProbeFailed: a rate differs from the declared one by more than the plan allows.
    """
    tolerance, planned = shaper.plan.fidelity.rate_error, plan_rate_probes(shaper.plan)
    for kind, name, reason in planned.skipped:
        if link_name := _find_rate_limit_link(shaper, kind, name):
            tested_property = name if kind == "pipe" else kind
            unproven = shaper.records[link_name].unproven | {tested_property: reason}
            shaper.update_link_record(link_name, unproven=unproven)
    for parallel_floods in group_parallel_probes(planned.probes):
        rates_bps = _send_rate_probes(shaper, node_addresses, parallel_floods)
        for flood, rate_bps in zip(parallel_floods, rates_bps, strict=True):
            tries = _repeat_rate_probe(shaper, node_addresses, flood, rate_bps)
            if abs(median(tries) / flood.rate_bps - 1) > tolerance:
                raise LinkProbeFailed(
                    f"{flood.name}: {flood.describe_rate_mismatch(median(tries), shaper.plan.dilation)}; "
                    f"`fidelity.rate_error` allows {tolerance:.1%}; {BUSY_HOST_HINT}"
                )
            _record_probed_rates(shaper, flood, tries)


def _repeat_rate_probe(
    shaper: LinkShaper, node_addresses: dict[str, str], rate_probe: RateProbe, first_rate_bps: float
) -> tuple[float, ...]:
    """Repeat the measurement of a link rate until the result is conclusive.

    The measurement is a flood, a stream of datagrams that fills the link. Return all rates, in bit/s of wall time.
    """
    tolerance = shaper.plan.fidelity.rate_error
    return repeat_until_conclusive(
        first_rate_bps,
        measure_again=lambda: _send_rate_probes(shaper, node_addresses, (rate_probe,))[0],
        is_value_ok=lambda rate_bps: abs(rate_bps / rate_probe.rate_bps - 1) <= tolerance,
    )


def _send_rate_probes(shaper: LinkShaper, node_addresses: dict[str, str], probes: Iterable[RateProbe]) -> list[float]:
    """Send several floods (streams of UDP datagrams that fill links) at the same time.

    Return the received rate of each flood, in bit/s.

    Raises:
        TrialFailed: a flood could not be sent.
    """
    start = time.monotonic() + FLOOD_LEAD_S
    send_replies: list[Future[dict[str, Any]]] = []
    count_replies: list[list[tuple[Future[dict[str, Any]], tuple[str, ...]]]] = []
    for flood in probes:
        since = start + FLOOD_WARM_UP_S + flood.delay_s
        until = since + flood.duration_s
        for source, targets in flood.targets_by_source().items():
            rates_bps = {node_addresses[target]: flood.send_rate_bps(source, target) for target in targets}
            send_replies.append(shaper.helpers[source].submit("flood", targets=rates_bps, since=start, until=until))
        count_replies.append(
            [
                (shaper.helpers[target].submit("heard", since=since, until=until), sources)
                for target, sources in flood.sources_by_target().items()
            ]
        )
    arrived_bps = [
        sum(
            reply.result(REPLY_TIMEOUT_S)["by_source_bps"].get(node_addresses[source], 0.0)
            for reply, sources in replies_of_flood
            for source in sources
        )
        for replies_of_flood in count_replies
    ]
    _await_helper_replies(send_replies)
    return arrived_bps


def _record_probed_rates(shaper: LinkShaper, rate_probe: RateProbe, rates_bps: Sequence[float]) -> None:
    """Store the rates that a flood has measured in the records of the tested links.

    A flood is a stream of datagrams that fills a link.
    """
    dilation = shaper.plan.dilation
    measurement = MeasuredLinkValue(
        declared=rate_probe.rate_bps * dilation,
        achieved=median(rates_bps) * dilation,
        tries=tuple(round(rate_bps * dilation) for rate_bps in rates_bps),
    )
    for kind, name in rate_probe.limits:
        if link_name := _find_rate_limit_link(shaper, kind, name):
            record = shaper.records[link_name]
            if kind == "pipe":
                limits_bps = record.achieved_pipes_bps | {name: measurement.achieved}
                flooded = record.flooded | {name: measurement}
                shaper.update_link_record(link_name, achieved_pipes_bps=limits_bps, flooded=flooded)
            else:
                flooded = record.flooded | {kind: measurement}
                shaper.update_link_record(link_name, flooded=flooded, **{f"achieved_{kind}_bps": measurement.achieved})


def _find_rate_limit_link(shaper: LinkShaper, rate_limit_kind: str, rate_limit_name: str) -> str | None:
    """Return the link whose record stores the measured value of a rate limit.

    Return None if no link has the limit.
    """
    return shaper.link_enforcing_rate_limit(rate_limit_name) if rate_limit_kind == "pipe" else rate_limit_name


def _measure_message_time(shaper: LinkShaper, node_addresses: dict[str, str]) -> None:
    """Measure and record the time of one message of the workload's size.

    The message has a TCP stream of its own.

    Raises:
        TrialFailed: the message was much faster than the link's rate allows.
    """
    message = plan_message_time_probe(shaper.plan)
    if message is None:
        return
    plan, helper, address = shaper.plan, shaper.helpers[message.source], node_addresses[message.target]
    declared_s = message.expected_s / plan.dilation
    tolerance_s = plan.fidelity.message_time_tolerance_s(declared_s, plan.dilation)

    def measure_message_transfer_s() -> float:
        return float(helper.request("message", address=address, size=message.size_bytes)["seconds"]) / plan.dilation

    tries = repeat_until_conclusive(
        measure_message_transfer_s(),
        measure_message_transfer_s,
        lambda message_s: abs(message_s - declared_s) <= tolerance_s,
    )
    rounded_tries = tuple(round(message_s, 7) for message_s in tries)
    measurement = MeasuredLinkValue(declared=declared_s, achieved=median(tries), tries=rounded_tries)
    shaper.update_link_record(message.source, message_s={message.target: measurement})
    if measurement.achieved < UNSHAPED_TIME_RATIO * declared_s:
        raise TrialFailed(
            f"{message.source} to {message.target}: a message of {message.size_bytes} bytes took "
            f"{measurement.achieved:.3f} s instead of {declared_s:.3f} s, so the link is not shaped; "
            "`ensayo doctor` shows which shaping mechanisms work on this kernel"
        )


def _await_helper_replies(reply_futures: Iterable[Future[Any]]) -> None:
    """Wait for the replies of helper containers to all requests.

    If `reply_futures` is an iterator that sends the requests, all requests are sent before the first wait.
    """
    for reply in list(reply_futures):
        reply.result(REPLY_TIMEOUT_S)
