"""Properties of a node's link at one time.

They are the rates, delays, losses and partitions, with the active events applied. A plan states rates and delays in
virtual time. The values here are in wall-clock time, as the kernel needs them.
"""

from collections.abc import Iterator, Sequence
from math import inf
from typing import NamedTuple

from services.cluster.events import AnyDeclaredEvent, LinkChange, NetworkPartition
from services.cluster.network import NetworkPath
from services.plan import COORDINATOR, NodePlan, Plan
from services.schema.component import FrozenRecord


class LinkState(FrozenRecord):
    """Rates, delays, losses and partitions of one node's link at one time.

    All values are in wall-clock units.
    """

    node: str
    uplink_bps: float | None = None
    downlink_bps: float | None = None
    paths: tuple[NetworkPath, ...] = ()  # paths that end at the node and delay or lose packets
    partitioned_nodes: tuple[str, ...] = ()  # nodes whose packets to this node a partition drops


class SendRateRange(NamedTuple):
    """Lowest and highest rate at which a node may send packets.

    Rates are in bit/s of wall time.
    """

    slowest_bps: float  # lowest limit on any path, events included
    fastest_bps: float  # rate of the fastest path from end to end, before any event; inf if a path has no limit


def data_network_nodes(plan: Plan) -> tuple[NodePlan, ...]:
    """Return all nodes on the data network: every node except the coordinator."""
    return tuple(node for node in plan.nodes if node.name != COORDINATOR)


def link_state_of(plan: Plan, node: NodePlan, active_events: Sequence[AnyDeclaredEvent] = ()) -> LinkState:
    """Return the rates, delays, losses and partitions of a node's link during given events.

    If several events change the same rate, the last one wins.
    """
    link_events = [event for event in active_events if isinstance(event, LinkChange)]
    own_events = [event for event in link_events if node.name in event.of]
    peer_names = [peer.name for peer in data_network_nodes(plan) if peer != node]
    uplink_bps = _last_declared_rate_bps([node.uplink_bps, *(event.uplink for event in own_events)])
    downlink_bps = _last_declared_rate_bps([node.downlink_bps, *(event.downlink for event in own_events)])
    paths = (_path_with_link_changes(plan, peer_name, node.name, link_events) for peer_name in peer_names)
    return LinkState(
        node=node.name,
        uplink_bps=_to_wall_rate_bps(uplink_bps, plan.dilation),
        downlink_bps=_to_wall_rate_bps(downlink_bps, plan.dilation),
        paths=tuple(path for path in paths if path.delay_s or path.losses),
        partitioned_nodes=tuple(
            peer
            for peer in peer_names
            if any(_drops_packets_between(event, peer, node.name) for event in active_events)
        ),
    )


def find_send_rate_range_bps(plan: Plan, sender: NodePlan) -> SendRateRange | None:
    """Return the lowest and the highest rate at which a node may send to its peers.

    Return None if no rate is limited.
    """
    peer_limits = [
        tuple(_link_rates_between(plan, sender, peer)) for peer in data_network_nodes(plan) if peer != sender
    ]
    if not any(peer_limits):
        return None
    slowest_bps = min(min(limit) for limits in peer_limits for limit in limits)
    fastest_bps = max(min((declared for declared, *_ in limits), default=inf) for limits in peer_limits)
    return SendRateRange(slowest_bps / plan.dilation, fastest_bps / plan.dilation)


def may_lose_packets(plan: Plan, node: NodePlan) -> bool:
    """Return whether packets sent by a node may be lost, from the start of the trial or during an event."""
    if any(path.source == node.name and path.losses for path in plan.network.paths):
        return True
    return any(change.loss for change in link_changes(plan))


def link_changes(plan: Plan) -> tuple[LinkChange, ...]:
    """Return the changes of link properties that the events of a trial plan make.

    Partitions and all other events are left out.
    """
    return tuple(event.change for event in plan.events if isinstance(event.change, LinkChange))


def has_delay_or_loss_changes(plan: Plan) -> bool:
    """Return whether any event of a trial plan changes a delay or a loss."""
    return any(change.delay or change.loss for change in link_changes(plan))


def _link_rates_between(plan: Plan, source: NodePlan, target: NodePlan) -> Iterator[tuple[float, ...]]:
    """Yield the declared rate of each rate limit between two nodes, and all rates set by events.

    Rates are in bit/s of virtual time.
    """
    yield from ((link.rate_bps,) for link in plan.network.shared_links_between(source.name, target.name))
    changes = link_changes(plan)
    uplink = (source.uplink_bps, *(change.uplink for change in changes if source.name in change.of))
    downlink = (target.downlink_bps, *(change.downlink for change in changes if target.name in change.of))
    for rates_bps in (uplink, downlink):
        if limits := tuple(rate_bps for rate_bps in rates_bps if rate_bps):
            yield limits


def _path_with_link_changes(plan: Plan, source: str, target: str, active_changes: Sequence[LinkChange]) -> NetworkPath:
    """Return the network path between two nodes, with the changes made by events.

    The path has the delays and losses that events add to the links of both nodes. Delays and jitters are in wall-clock
    time.
    """
    path = plan.network.path_between(source, target)
    path_changes = [change for change in active_changes for end in (source, target) if end in change.of]
    added_delay_s = sum(change.delay or 0.0 for change in path_changes)
    losses = (*path.losses, *(change.loss for change in path_changes if change.loss))
    jitters = tuple(
        jitter.model_copy(update={"deviation": type(jitter.deviation)(jitter.deviation * plan.dilation)})
        for jitter in path.jitters
    )
    delay_s = (path.delay_s + added_delay_s) * plan.dilation
    return path.model_copy(update={"delay_s": delay_s, "jitters": jitters, "losses": losses})


def _drops_packets_between(event: AnyDeclaredEvent, source: str, target: str) -> bool:
    """Return whether an event is a network partition that drops packets from one node to another."""
    return isinstance(event, NetworkPartition) and event.blocks(source, target)


def _last_declared_rate_bps(rates_over_time_bps: Sequence[float | None]) -> float | None:
    """Return the last declared rate in a list of link rates.

    This rate overrides the others. Return None if none is declared.
    """
    return next((value for value in reversed(rates_over_time_bps) if value is not None), None)


def _to_wall_rate_bps(rate_bps: float | None, dilation: float) -> float | None:
    """Convert a rate from bit/s of virtual time to bit/s of wall time.

    The rate is divided by the dilation (slow-down factor).
    """
    return None if rate_bps is None else rate_bps / dilation
