"""Are the links what the plan says, when packets pass them? Measured by helpers while all nodes wait for the gate."""

import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from compose.engines.base import Measured, Shaped
from compose.engines.enforcement import Enforcement
from compose.shaping.floods import Flood, RoundTrip, message_of, plan_floods, round_trips, rounds
from compose.shaping.state import members
from compose.supervise import TrialFailed

ECHOES, ECHO_GAP_S = 6, 0.02
LEAD_S, WARM_S = 0.08, 0.05  # until all helpers have heard of a flood; until credits are spent
DRAIN_S = 0.1  # until what still waits in queues has left: training must not count it as its own
WORST = 3  # of complaints that a reason quotes
TRIES = 5  # a host that was busy for a moment is not a wrong link
HURRIED = 0.75  # a message that takes less than this share of its time was not shaped


def prove(links: Enforcement, pool: ThreadPoolExecutor) -> dict[str, Shaped]:
    """Measure round trips, rates and one message; what was found goes into the record.

    Raises:
        TrialFailed: something is further off than the plan's thresholds allow, after some tries.
    """
    nodes = {node.name: node.place.data.host for node in members(links.plan)}
    if len(nodes) < 2 or not _declares(links):  # noqa: PLR2004 - nobody to send anything to
        return {}
    _all(pool.submit(links.helpers[name].do, "listen", address=address) for name, address in nodes.items())
    try:
        _prove_round_trips(links, nodes)
        _prove_rates(links, nodes)
        _prove_message(links, nodes)
    finally:
        _all(pool.submit(links.helpers[name].do, "hush") for name in nodes)
    time.sleep(DRAIN_S)
    return {name: links.record(name) for name in links.names}


def _declares(links: Enforcement) -> bool:
    return any(rung != "none" for rung in (links.rungs.rate, links.rungs.delay))


def _prove_round_trips(links: Enforcement, nodes: dict[str, str]) -> None:
    """Every pair with a delay, from one of its ends."""
    if links.rungs.delay in ("none", "transport"):
        return
    wanted, tolerance_s = round_trips(links.plan), links.plan.fidelity.round_trip
    found: dict[tuple[str, str], float | None] = {}
    ask = {name: tuple(peers) for name, peers in wanted.items()}
    for _ in range(TRIES):
        found |= _echo(links, nodes, wanted, ask)
        wrong = {
            (name, peer): wanted[name][peer].complaint(name, peer, achieved)
            for (name, peer), achieved in found.items()
            if achieved is None or not wanted[name][peer].allows(achieved, tolerance_s)
        }
        if not wrong:
            break
        ask = {name: tuple(peer for one, peer in wrong if one == name) for name, _ in wrong}
    else:
        raise TrialFailed("; ".join(list(wrong.values())[:WORST]))
    for name, peers in wanted.items():
        pairs = {peer: (expected.mean_s, found[name, peer]) for peer, expected in peers.items()}
        known = {peer: Measured(declared=a, achieved=b) for peer, (a, b) in pairs.items() if b is not None}
        links.record(name, round_trip_s=known)


def _echo(
    links: Enforcement, nodes: dict[str, str], wanted: dict[str, dict[str, RoundTrip]], ask: dict[str, tuple[str, ...]]
) -> dict[tuple[str, str], float | None]:
    """Virtual seconds from a node to a peer and back; one node after the other, or they would wait for the cores."""
    found = {}
    for name, peers in ask.items():
        addresses = {peer: nodes[peer] for peer in peers}
        said = links.helpers[name].do("echoes", peers=addresses, count=ECHOES, gap_s=ECHO_GAP_S)
        for peer, times in said["round_trips_s"].items():
            found[name, peer] = wanted[name][peer].judged_by(times, links.plan.dilation)
    return found


def _prove_rates(links: Enforcement, nodes: dict[str, str]) -> None:
    """Disjoint floods at once, as many as the host carries; what fails is tried again alone."""
    tolerance = links.plan.fidelity.rate_error
    for together in rounds(plan_floods(links.plan)):
        achieved = _flood(links, nodes, together)
        for flood, rate in zip(together, achieved, strict=True):
            best, tries = rate, 1
            while abs(best / flood.rate_bps - 1) > tolerance and tries < TRIES:
                (again,) = _flood(links, nodes, (flood,))
                best, tries = min(best, again, key=lambda found: abs(found / flood.rate_bps - 1)), tries + 1
            if abs(best / flood.rate_bps - 1) > tolerance:
                raise TrialFailed(f"{flood.name}: {flood.complaint(best, links.plan.dilation)}")
            _note(links, flood, best * links.plan.dilation)


def _flood(links: Enforcement, nodes: dict[str, str], floods: Iterable[Flood]) -> list[float]:
    """Bit/s on the wall that arrived of each."""
    start = time.monotonic() + LEAD_S
    heard: list[list[tuple[Future[dict[str, Any]], tuple[str, ...]]]] = []
    for flood in floods:
        since = start + WARM_S + flood.delay_s
        until = since + flood.seconds
        for source, targets in flood.by_source().items():
            most = {nodes[target]: flood.most_bps for target in targets}
            links.helpers[source].ask("flood", targets=most, since=start, until=until)
        heard.append(
            [
                (links.helpers[target].ask("heard", since=since, until=until), sources)
                for target, sources in flood.by_target().items()
            ]
        )
    return [
        sum(
            answer.result(60)["by_source_bps"].get(nodes[source], 0.0)
            for answer, sources in answers
            for source in sources
        )
        for answers in heard
    ]


def _note(links: Enforcement, flood: Flood, achieved_bps: float) -> None:
    for kind, name in flood.tests:
        if kind == "pipe":
            links.record_pipe(name, achieved_bps)
        else:
            links.record(name, **{f"achieved_{kind}_bps": achieved_bps})


def _prove_message(links: Enforcement, nodes: dict[str, str]) -> None:
    """One message of the workload's size, on a stream of its own."""
    chosen = message_of(links.plan)
    if chosen is None:
        return
    declared_s = chosen.seconds / links.plan.dilation
    taken: float = links.helpers[chosen.source].do("message", address=nodes[chosen.target], size=chosen.size)["seconds"]
    measured = Measured(declared=declared_s, achieved=taken / links.plan.dilation)
    links.record(chosen.source, message_s={chosen.target: measured})
    if measured.achieved < HURRIED * declared_s:
        raise TrialFailed(
            f"{chosen.source} to {chosen.target}: {chosen.size} bytes took {measured.achieved:.3f} s "
            f"instead of {declared_s:.3f} s: they were not shaped"
        )


def _all(asked: Iterable[Future[Any]]) -> None:
    for answer in list(asked):
        answer.result()
