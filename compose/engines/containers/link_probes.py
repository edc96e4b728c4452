"""Are the links what the plan says, when packets pass them? Measured by helpers while all nodes wait for the gate."""

import time
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from statistics import median
from typing import Any, TypeAlias

from compose.engines.base import Measured, Shaped
from compose.engines.containers.link_enforcement import Enforcement
from compose.engines.containers.repeated_measurement import rest, settled, tried
from compose.runs.supervisor import TrialFailed
from compose.shaping.link_state import members
from compose.shaping.probes import Flood, message_of, plan_floods, round_trips, rounds
from services.cluster.round_trips import ECHOES, RoundTrip

ECHO_GAP_S = 0.02
ANSWER_S = 60.0
LEAD_S, WARM_S = 0.08, 0.05  # until all helpers have heard of a flood; until credits are spent
DRAIN_S = 0.1  # until what still waits in queues has left: training must not count it as its own
WORST = 3  # of complaints that a reason quotes
HURRIED = 0.75  # a message that takes less than this share of its time was not shaped

Pair: TypeAlias = tuple[str, str]  # a node and its peer
Wanted: TypeAlias = dict[str, dict[str, RoundTrip]]  # node -> peer -> declared


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
    """Every pair with a delay and a few others, from one of their ends."""
    if links.rungs.delay == "transport":  # of which echoes would see nothing
        return
    wanted, tries = round_trips(links.plan), _echoed(links, nodes)
    found = {
        (name, peer): median(wanted[name][peer].found(echoes) for echoes in made)
        for (name, peer), made in tries.items()
    }
    if wrong := [(*pair, took) for pair, took in found.items() if not _is_good(links, wanted[pair[0]][pair[1]], took)]:
        raise TrialFailed(
            "; ".join(wanted[name][peer].complaint(name, peer, took) for name, peer, took in wrong[:WORST])
        )
    for name, peers in wanted.items():
        record = {
            peer: Measured(
                declared=declared.mean_s,
                achieved=found[name, peer],
                tries=tuple(round(echo, 7) for echoes in tries[name, peer] for echo in echoes),
            )
            for peer, declared in peers.items()
        }
        links.record(name, round_trip_s=record)


def _is_good(links: Enforcement, wanted: RoundTrip, found_s: float) -> bool:
    tolerance_s = wanted.tolerance_s(links.plan.fidelity.round_trip, links.plan.dilation)
    return abs(found_s - wanted.mean_s) <= tolerance_s


def _echoed(links: Enforcement, nodes: dict[str, str]) -> dict[Pair, list[list[float]]]:
    """Virtual seconds of the echoes of all tries of each pair; one try where that is good."""
    wanted = round_trips(links.plan)
    tries: dict[Pair, list[list[float]]] = {(name, peer): [] for name, peers in wanted.items() for peer in peers}
    open_pairs, at_once = set(tries), 1

    def is_open(pair: Pair) -> bool:
        declared = wanted[pair[0]][pair[1]]
        return not settled([declared.found(echoes) for echoes in tries[pair]], lambda s: _is_good(links, declared, s))

    while open_pairs:
        for _ in range(at_once):
            for pair, echoes in _echo(links, nodes, open_pairs).items():
                tries[pair].append(echoes)
        open_pairs, at_once = set(filter(is_open, open_pairs)), 2
        if open_pairs:
            rest(max(len(tries[pair]) for pair in open_pairs))
    return tries


def _echo(links: Enforcement, nodes: dict[str, str], pairs: Collection[Pair]) -> dict[Pair, list[float]]:
    """Virtual seconds there and back, of several echoes; one node after the other, or they would wait for the cores."""
    found = {}
    for name in sorted({name for name, _ in pairs}):
        addresses = {peer: nodes[peer] for one, peer in sorted(pairs) if one == name}
        said = links.helpers[name].do("echoes", peers=addresses, count=ECHOES, gap_s=ECHO_GAP_S)
        for peer, times in said["round_trips_s"].items():
            found[name, peer] = [each / links.plan.dilation for each in times]
    return found


def _prove_rates(links: Enforcement, nodes: dict[str, str]) -> None:
    """Disjoint floods at once, as many as the host carries; what fails is tried again alone."""
    tolerance, planned = links.plan.fidelity.rate_error, plan_floods(links.plan)
    for kind, name, why in planned.unproven:
        if owner := _owner(links, kind, name):
            what = name if kind == "pipe" else kind
            links.record(owner, unproven=links.record(owner).unproven | {what: why})
    for together in rounds(planned.floods):
        for flood, rate in zip(together, _flood(links, nodes, together), strict=True):
            tries = _tried(links, nodes, flood, rate)
            if abs(median(tries) / flood.rate_bps - 1) > tolerance:
                raise TrialFailed(f"{flood.name}: {flood.complaint(median(tries), links.plan.dilation)}")
            _note(links, flood, tries)


def _tried(links: Enforcement, nodes: dict[str, str], flood: Flood, first_bps: float) -> tuple[float, ...]:
    tolerance = links.plan.fidelity.rate_error
    return tried(
        first_bps,
        again=lambda: _flood(links, nodes, (flood,))[0],
        good=lambda found_bps: abs(found_bps / flood.rate_bps - 1) <= tolerance,
    )


def _flood(links: Enforcement, nodes: dict[str, str], floods: Iterable[Flood]) -> list[float]:
    """Bit/s on the wall that arrived of each.

    Raises:
        TrialFailed: one could not be sent.
    """
    start = time.monotonic() + LEAD_S
    sent: list[Future[dict[str, Any]]] = []
    heard: list[list[tuple[Future[dict[str, Any]], tuple[str, ...]]]] = []
    for flood in floods:
        since = start + WARM_S + flood.delay_s
        until = since + flood.seconds
        for source, targets in flood.by_source().items():
            most = {nodes[target]: flood.most_bps for target in targets}
            sent.append(links.helpers[source].ask("flood", targets=most, since=start, until=until))
        heard.append(
            [
                (links.helpers[target].ask("heard", since=since, until=until), sources)
                for target, sources in flood.by_target().items()
            ]
        )
    found = [
        sum(
            answer.result(ANSWER_S)["by_source_bps"].get(nodes[source], 0.0)
            for answer, sources in answers
            for source in sources
        )
        for answers in heard
    ]
    _all(sent)
    return found


def _note(links: Enforcement, flood: Flood, tries: Sequence[float]) -> None:
    """Write down what was found, virtual."""
    dilation = links.plan.dilation
    found = Measured(
        declared=flood.rate_bps * dilation,
        achieved=median(tries) * dilation,
        tries=tuple(round(each * dilation) for each in tries),
    )
    for kind, name in flood.tests:
        if owner := _owner(links, kind, name):
            known = links.record(owner)
            if kind == "pipe":
                pipes = known.achieved_pipes_bps | {name: found.achieved}
                links.record(owner, achieved_pipes_bps=pipes, flooded=known.flooded | {name: found})
            else:
                flooded = known.flooded | {kind: found}
                links.record(owner, flooded=flooded, **{f"achieved_{kind}_bps": found.achieved})


def _owner(links: Enforcement, kind: str, name: str) -> str | None:
    """In whose entry something is recorded."""
    return links.owner(name) if kind == "pipe" else name


def _prove_message(links: Enforcement, nodes: dict[str, str]) -> None:
    """A message of the workload's size, on a stream of its own."""
    chosen = message_of(links.plan)
    if chosen is None:
        return
    plan, helper, address = links.plan, links.helpers[chosen.source], nodes[chosen.target]
    declared_s = chosen.seconds / plan.dilation
    tolerance_s = plan.fidelity.message_tolerance_s(declared_s, plan.dilation)

    def again() -> float:
        return float(helper.do("message", address=address, size=chosen.size)["seconds"]) / plan.dilation

    tries = tried(again(), again, lambda found_s: abs(found_s - declared_s) <= tolerance_s)
    measured = Measured(declared=declared_s, achieved=median(tries), tries=tuple(round(each, 7) for each in tries))
    links.record(chosen.source, message_s={chosen.target: measured})
    if measured.achieved < HURRIED * declared_s:
        raise TrialFailed(
            f"{chosen.source} to {chosen.target}: {chosen.size} bytes took {measured.achieved:.3f} s "
            f"instead of {declared_s:.3f} s: they were not shaped"
        )


def _all(asked: Iterable[Future[Any]]) -> None:
    for answer in list(asked):
        answer.result(ANSWER_S)
