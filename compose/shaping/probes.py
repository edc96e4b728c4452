"""Which packets would show that links are what the plan says? Floods, echoes and a message, sent by helpers."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import inf
from typing import TypeAlias

from compose.shaping.link_state import members, state_of
from services.cluster.fluid_link import PAYLOAD_SHARE
from services.cluster.network import ExpectedRoundTrip, NetworkPath, SharedLink, expected_round_trip
from services.plan import NodePlan, Plan
from services.schema.component import FrozenRecord

FRAME_BITS = 1514 * 8
SHORTEST_S, LONGEST_S, FEWEST_FRAMES = 0.15, 1.0, 40
HOST_BPS = 1.5e9  # of floods at once on this host; above, its cores would be measured
# Above, a flood of ours would measure the host. Whether a run may ask for such rates, admission decides; what it then
# achieves, its steps tell.
PROVABLE_BPS = 2.5e9
MOST_PAIRS = 4  # to fill a shared limit
FEW_PAIRS = 4  # without a declared delay, that are echoed nevertheless
EAGER = 1.5  # how much more is sent than should arrive
LONGEST_MESSAGE_S = 0.3
SHORTEST_MESSAGE_BYTES = 64 << 10  # of smaller ones, credits let too much through at once

Test: TypeAlias = tuple[str, str]  # uplink, downlink or pipe, of whom
Flow: TypeAlias = tuple[str, str]  # source, target


class Flood(FrozenRecord):
    """Datagrams from some nodes to others that together should arrive at a certain rate."""

    name: str
    tests: tuple[Test, ...]
    flows: tuple[Flow, ...]
    rate_bps: float  # wall; what should arrive
    delay_s: float = 0.0  # wall, the longest on its ways
    fills: bool = True  # whether it is the rate of what is tested; else all that its senders can bring, which is less

    @property
    def seconds(self) -> float:
        """For how long arrivals are counted."""
        return min(LONGEST_S, max(SHORTEST_S, FEWEST_FRAMES * FRAME_BITS / self.rate_bps))

    @property
    def most_bps(self) -> float:
        """What one source sends to one target at most."""
        return self.rate_bps * EAGER

    @property
    def why_not(self) -> str:
        """Why it can't be sent; empty where it can."""
        if not self.flows:
            return "the ways that could fill it lose packets"
        if self.rate_bps > (PROVABLE_BPS if self.fills else HOST_BPS):
            return f"a flood of {self.rate_bps / 1e9:.3g} Gbit/s on the wall would measure this host"
        return ""

    @property
    def nodes(self) -> frozenset[str]:
        """Everybody who takes part."""
        return frozenset(name for flow in self.flows for name in flow)

    def by_source(self) -> dict[str, tuple[str, ...]]:
        """Source -> targets."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for source, target in self.flows:
            found[source].append(target)
        return {source: tuple(targets) for source, targets in found.items()}

    def by_target(self) -> dict[str, tuple[str, ...]]:
        """Target -> sources."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for source, target in self.flows:
            found[target].append(source)
        return {target: tuple(sources) for target, sources in found.items()}

    def complaint(self, achieved_bps: float, dilation: float) -> str:
        """What is wrong, in virtual units."""
        declared, found = self.rate_bps * dilation / 1e6, achieved_bps * dilation / 1e6
        error = found / declared - 1
        told = "declared" if self.fills else "its peers together can bring"
        return f"{told} {declared:.4g} Mbit/s, {found:.4g} arrived in the probe before the run ({error:+.1%})"


class Message(FrozenRecord):
    """One message and the time that it should take."""

    source: str
    target: str
    size: int
    seconds: float  # wall


class Planned(FrozenRecord):
    """What can be shown, and why the rest can't."""

    floods: tuple[Flood, ...]
    unproven: tuple[tuple[str, str, str], ...] = ()  # uplink, downlink or pipe, of whom, and why there is no flood


def round_trips(plan: Plan) -> dict[str, dict[str, ExpectedRoundTrip]]:
    """Node -> peer -> what echoes between them take, for every pair with a delay, once, and for a few without one."""
    names = [node.name for node in members(plan)]
    found: dict[str, dict[str, ExpectedRoundTrip]] = {}
    near = list(zip(names[::2], names[1::2], strict=False))  # where there should be no delay, some are asked, too
    asked = set(near[:: max(1, len(near) // FEW_PAIRS)][:FEW_PAIRS])
    for k, one in enumerate(names):
        for other in names[k + 1 :]:
            declared = expected_round_trip(plan.network, one, other)
            if declared.mean_s or (one, other) in asked:
                found.setdefault(one, {})[other] = declared
    return found


def plan_floods(plan: Plan) -> Planned:
    """Floods that test every uplink, downlink and limit that nodes can fill and this host carries."""
    ways = _Ways(plan)
    tested: set[Test] = set()
    tried = [*_between_equals(ways, tested), *_of_links(ways, tested), *_of_pipes(ways)]
    why = [(*test, flood.why_not) for flood in tried for test in flood.tests if flood.why_not]
    return Planned(floods=tuple(flood for flood in tried if not flood.why_not), unproven=tuple(why))


def rounds(floods: Iterable[Flood]) -> tuple[tuple[Flood, ...], ...]:
    """Floods that may go on at once: of different nodes, and no more than the host carries."""
    packed: list[list[Flood]] = []
    for flood in sorted(floods, key=lambda flood: -flood.seconds):
        for together in packed:
            free = all(flood.nodes.isdisjoint(other.nodes) for other in together)
            if free and sum(other.rate_bps for other in (*together, flood)) <= HOST_BPS:
                together.append(flood)
                break
        else:
            packed.append([flood])
    return tuple(map(tuple, packed))


def message_of(plan: Plan) -> Message | None:
    """A message of the size that the workload sends, where a stream to send it on loses nothing; None elsewhere."""
    ways = _Ways(plan)
    size = plan.vector_bytes // max(1, len(plan.shard_owners) or plan.workers)
    for source, target in ways.pairs():
        rate = ways.rate(source.name, target.name)
        there, back = (
            plan.network.path_between(source.name, target.name),
            plan.network.path_between(target.name, source.name),
        )
        if rate == inf or there.losses or back.losses or there.delay_s or back.delay_s:
            continue
        fits = min(size, int(rate / 8 * PAYLOAD_SHARE * LONGEST_MESSAGE_S))
        if fits < SHORTEST_MESSAGE_BYTES:
            return None
        return Message(source=source.name, target=target.name, size=fits, seconds=fits * 8 / (rate * PAYLOAD_SHARE))
    return None


class _Ways:
    """Rates between nodes on the wall."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.nodes = members(plan)
        self._states = {node.name: state_of(plan, node) for node in self.nodes}

    def pairs(self) -> Iterator[tuple[NodePlan, NodePlan]]:
        """All ordered pairs; a node's successor comes first, so that everybody gets another partner."""
        for distance in range(1, len(self.nodes)):
            for k, node in enumerate(self.nodes):
                yield node, self.nodes[(k + distance) % len(self.nodes)]

    def uplink(self, name: str) -> float:
        return self._states[name].uplink_bps or inf

    def downlink(self, name: str) -> float:
        return self._states[name].downlink_bps or inf

    def pipes(self, source: str, target: str) -> tuple[SharedLink, ...]:
        return self.plan.network.shared_links_between(source, target)

    def between(self, source: str, target: str) -> float:
        """The least rate of what lies between two ports."""
        return min((pipe.rate_bps / self.plan.dilation for pipe in self.pipes(source, target)), default=inf)

    def rate(self, source: str, target: str) -> float:
        """What one flow gets."""
        return min(self.uplink(source), self.between(source, target), self.downlink(target))

    def delay(self, flows: Iterable[Flow]) -> float:
        """The longest delay of some flows."""
        paths: list[NetworkPath] = [self.plan.network.path_between(*flow) for flow in flows]
        return max((path.delay_s for path in paths), default=0.0) * self.plan.dilation

    def lossy(self, flows: Iterable[Flow]) -> bool:
        """Whether a flood would lose what it is to count."""
        return any(self.plan.network.path_between(*flow).losses for flow in flows)

    def flood(self, name: str, tests: tuple[Test, ...], flows: tuple[Flow, ...], rate: float, full: float) -> Flood:
        """A flood of what flows bring through something of the rate `full`."""
        return Flood(
            name=name, tests=tests, flows=flows, rate_bps=min(rate, full), delay_s=self.delay(flows), fills=rate >= full
        )


def _between_equals(ways: _Ways, tested: set[Test]) -> Iterator[Flood]:
    """An uplink and a downlink of the same rate with nothing slower between them: one flood shows both."""
    for source, target in ways.pairs():
        tests, flows = (("uplink", source.name), ("downlink", target.name)), ((source.name, target.name),)
        rate = ways.uplink(source.name)
        equal = rate == ways.downlink(target.name) < inf and ways.between(source.name, target.name) > rate
        if equal and not tested & set(tests) and not ways.lossy(flows):
            tested |= set(tests)
            yield ways.flood(f"{source.name} to {target.name}", tests, flows, rate, rate)


def _of_links(ways: _Ways, tested: set[Test]) -> Iterator[Flood]:
    """The others: as many peers as it takes to fill a link, or all of them where they can't."""
    for node in ways.nodes:
        for kind, rate in (("uplink", ways.uplink(node.name)), ("downlink", ways.downlink(node.name))):
            if rate < inf and (kind, node.name) not in tested:
                flows, brought = _filling(ways, node.name, kind, rate)
                yield ways.flood(f"{node.name} {kind}", ((kind, node.name),), flows, brought, rate)


def _filling(ways: _Ways, name: str, kind: str, rate: float) -> tuple[tuple[Flow, ...], float]:
    """Flows that bring the most to a link, and how much; no flows where only some that lose packets bring it."""
    others = [node.name for node in ways.nodes if node.name != name]
    flows = [(name, other) if kind == "uplink" else (other, name) for other in others]
    whole = [flow for flow in flows if not ways.lossy([flow])]
    alone = [flow for flow in whole if not any(pipe.serves_many_pairs for pipe in ways.pipes(*flow))]
    for candidates in (alone, whole):
        chosen, brought = _chosen(ways, candidates, kind, rate)
        if brought >= rate:
            return chosen, brought
    _, most = _chosen(ways, flows, kind, rate)
    return (chosen, brought) if most == brought else ((), most)


def _chosen(ways: _Ways, flows: Iterable[Flow], kind: str, rate: float) -> tuple[tuple[Flow, ...], float]:
    """The fastest of some flows, until they bring a rate; and what they bring, limits that they share counted once."""
    left: dict[str, float] = {}

    def beside(flow: Flow) -> float:
        return ways.downlink(flow[1]) if kind == "uplink" else ways.uplink(flow[0])

    chosen: list[Flow] = []
    brought = 0.0
    for flow in sorted(flows, key=lambda flow: min(beside(flow), ways.between(*flow)), reverse=True):
        through = {pipe.name: left.get(pipe.name, pipe.rate_bps / ways.plan.dilation) for pipe in ways.pipes(*flow)}
        part = min(beside(flow), rate, *through.values())
        if brought >= rate or not part:
            continue
        left |= {name: rest - part for name, rest in through.items()}
        chosen.append(flow)
        brought += part
    return tuple(chosen), brought


def _of_pipes(ways: _Ways) -> Iterator[Flood]:
    """Limits of pairs and groups, by disjoint pairs of nodes that together could send more."""
    for pipe in ways.plan.network.shared_links:
        rate, free = pipe.rate_bps / ways.plan.dilation, set(pipe.sources) | set(pipe.targets)
        chosen: list[Flow] = []
        could = 0.0
        for source in pipe.sources:
            target = next((name for name in pipe.targets if name in free and name != source), None)
            if source in free and target and could < rate and len(chosen) < MOST_PAIRS:
                rest = [p.rate_bps / ways.plan.dilation for p in ways.pipes(source, target) if p != pipe]
                could += min(ways.uplink(source), ways.downlink(target), *rest, inf)
                chosen.append((source, target))
                free -= {source, target}
        others = {p.name: p.rate_bps for flow in chosen for p in ways.pipes(*flow) if p != pipe}
        filled = could >= rate and all(least >= pipe.rate_bps for least in others.values())
        if filled:
            flows = () if ways.lossy(chosen) else tuple(chosen)
            yield ways.flood(pipe.name, (("pipe", pipe.name),), flows, rate, rate)
