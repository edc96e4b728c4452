"""What is a node's link at a moment? The plan's network with the events that are in force, in units of the wall."""

from collections.abc import Iterator, Sequence
from math import inf
from typing import NamedTuple

from services.cluster.events import AnyDeclaredEvent, LinkChange, NetworkPartition
from services.cluster.network import NetworkPath
from services.plan import COORDINATOR, NodePlan, Plan
from services.schema.component import FrozenRecord


class LinkState(FrozenRecord):
    """One node's link; wall units: what the kernel is told."""

    node: str
    uplink_bps: float | None = None
    downlink_bps: float | None = None
    paths: tuple[NetworkPath, ...] = ()  # that end here and delay or lose packets
    apart: tuple[str, ...] = ()  # nodes whose packets don't arrive


class Extremes(NamedTuple):
    """Of the rates at which packets of a node may travel; wall."""

    slowest_bps: float  # that one may meet, events included
    fastest_bps: float  # from end to end on the fastest way, before any event; infinite where one has no limit


def members(plan: Plan) -> tuple[NodePlan, ...]:
    """Everybody on the data network."""
    return tuple(node for node in plan.nodes if node.name != COORDINATOR)


def state_of(plan: Plan, node: NodePlan, active: Sequence[AnyDeclaredEvent] = ()) -> LinkState:
    """A node's link while some events are in force; the last one wins where two change the same rate."""
    changes = [what for what in active if isinstance(what, LinkChange)]
    mine = [change for change in changes if node.name in change.of]
    others = [other.name for other in members(plan) if other != node]
    paths = (_path(plan, source, node.name, changes) for source in others)
    return LinkState(
        node=node.name,
        uplink_bps=_wall(_last([node.uplink_bps, *(change.uplink for change in mine)]), plan.dilation),
        downlink_bps=_wall(_last([node.downlink_bps, *(change.downlink for change in mine)]), plan.dilation),
        paths=tuple(path for path in paths if path.delay_s or path.losses),
        apart=tuple(other for other in others if any(_parts(what, other, node.name) for what in active)),
    )


def extremes_of(plan: Plan, node: NodePlan) -> Extremes | None:
    """How slow and how fast packets of a node may travel to its peers; None when nothing is shaped."""
    ways = [tuple(_on_the_way(plan, node, other)) for other in members(plan) if other != node]
    if not any(ways):
        return None
    slowest = min(min(limit) for way in ways for limit in way)
    fastest = max(min((before for before, *_ in way), default=inf) for way in ways)
    return Extremes(slowest / plan.dilation, fastest / plan.dilation)


def loses(plan: Plan, node: NodePlan) -> bool:
    """Whether packets that a node sends may be lost, now or by an event."""
    if any(path.source == node.name and path.losses for path in plan.network.paths):
        return True
    return any(change.loss for change in changes_of(plan))


def changes_of(plan: Plan) -> tuple[LinkChange, ...]:
    """All changes of links on the timeline."""
    return tuple(event.change for event in plan.events if isinstance(event.change, LinkChange))


def delays_change(plan: Plan) -> bool:
    """Whether the timeline changes delays or losses."""
    return any(change.delay or change.loss for change in changes_of(plan))


def _on_the_way(plan: Plan, source: NodePlan, target: NodePlan) -> Iterator[tuple[float, ...]]:
    """Each limit between two nodes, as it is before any event and as events make it; virtual."""
    yield from ((pipe.rate_bps,) for pipe in plan.network.shared_links_between(source.name, target.name))
    changes = changes_of(plan)
    up = (source.uplink_bps, *(change.uplink for change in changes if source.name in change.of))
    down = (target.downlink_bps, *(change.downlink for change in changes if target.name in change.of))
    for each in (up, down):
        if limits := tuple(rate for rate in each if rate):
            yield limits


def _path(plan: Plan, source: str, target: str, changes: Sequence[LinkChange]) -> NetworkPath:
    """A path with what events add to the links of both ends; delays and jitters as they are on the wall."""
    path = plan.network.path_between(source, target)
    on_it = [change for change in changes for end in (source, target) if end in change.of]
    added = sum(change.delay or 0.0 for change in on_it)
    losses = (*path.losses, *(change.loss for change in on_it if change.loss))
    jitters = tuple(
        jitter.model_copy(update={"deviation": type(jitter.deviation)(jitter.deviation * plan.dilation)})
        for jitter in path.jitters
    )
    delay_s = (path.delay_s + added) * plan.dilation
    return path.model_copy(update={"delay_s": delay_s, "jitters": jitters, "losses": losses})


def _parts(what: AnyDeclaredEvent, source: str, target: str) -> bool:
    """Whether a partition lies between two nodes."""
    return isinstance(what, NetworkPartition) and (source in what.apart) != (target in what.apart)


def _last(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def _wall(rate_bps: float | None, dilation: float) -> float | None:
    return None if rate_bps is None else rate_bps / dilation
