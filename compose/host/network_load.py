"""Traffic that a trial can cause on the links of its emulated network."""

from collections.abc import Iterator
from math import inf

from compose.host.step_load import training_phases
from services.cluster.events import LinkChange
from services.plan import NodePlan, Plan
from services.strategies.cost_model import Flow


def max_traffic_bps_by_link(plan: Plan) -> Iterator[tuple[str, float]]:
    """Yield each rate-limited link and the most traffic that its nodes can cause.

    The link is described in words. The traffic is in bits per virtual second.
    """
    uplinks, downlinks = (
        {node.name: _max_link_rate_bps(plan, node, direction) for node in plan.nodes}
        for direction in ("uplink", "downlink")
    )
    flows = [flow for flow_set in _flows_of_each_exchange(plan) for flow in flow_set]
    for name in uplinks:
        senders = {source for source, target in flows if target == name}
        receivers = {target for source, target in flows if source == name}
        for direction, rate_bps, peers_bps in (
            ("uplink", uplinks[name], sum(downlinks[receiver] for receiver in receivers)),
            ("downlink", downlinks[name], sum(uplinks[sender] for sender in senders)),
        ):
            if rate_bps < inf and peers_bps:
                yield f"{name}'s {direction} of {format_rate_gbit(rate_bps)}", min(rate_bps, peers_bps)
    for link in plan.network.shared_links:
        senders = {source for source, target in flows if link.carries_flow(source, target)}
        if senders:
            senders_bps = sum(uplinks[sender] for sender in senders)
            yield f"{link.name} of {format_rate_gbit(link.rate_bps)}", min(link.rate_bps, senders_bps)


def _max_link_rate_bps(plan: Plan, node: NodePlan, direction: str) -> float:
    """Return the highest rate of a node's link in a trial.

    Rates during link events count, too. The rate is infinite for a link without shaping.
    """
    declared_bps = node.uplink_bps if direction == "uplink" else node.downlink_bps
    changes = (event.change for event in plan.events if isinstance(event.change, LinkChange))
    changed_bps = (getattr(change, direction) or 0.0 for change in changes if node.name in change.of)
    return inf if declared_bps is None else max((declared_bps, *changed_bps))


def _flows_of_each_exchange(plan: Plan) -> tuple[list[Flow], ...]:
    """Return sets of flows (sender, receiver) that send at the same time.

    There is one set per collective, one set of pushes and one set of replies.
    """
    workers = plan.step_cost_model.workers
    pushes = list(plan.worker_server_push_pairs)
    replies = [(server, worker) for worker, server in pushes]
    collectives = [
        [(workers[source], workers[target]) for source, target in sorted(schedule.sending_rank_pairs)]
        for schedule in dict.fromkeys(phase.schedule for phase in training_phases(plan))
    ]
    return tuple(flow_set for flow_set in (*collectives, pushes, replies) if flow_set)


def total_payload_bps(plan: Plan) -> float:
    """Return the total rate of the bytes that nodes send over all links while only the network limits it.

    The rate is in bit/s of the emulated time. It is 0 when nothing is shaped.
    """
    bits_per_byte_on_wire = 8 if plan.sends_padding else 8 / plan.payload_scale
    transfers = (
        (flows, plan.step_cost_model.concurrent_transfer_s(flows, 1.0)) for flows in _flows_of_each_exchange(plan)
    )
    rates = (bits_per_byte_on_wire * len(flows) / transfer_s for flows, transfer_s in transfers if transfer_s)
    return max(rates, default=0.0)


def format_rate_gbit(rate_bps: float) -> str:
    """Return a rate in bit/s as text in Gbit/s."""
    return f"{rate_bps / 1e9:.3g} Gbit/s"
