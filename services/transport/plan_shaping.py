"""Shaping of a node's transport, as a plan requires it."""

from pathlib import Path

from services.cluster.links.fluid_link import AtomicFloatFile, InProcessAtomicFloat, RateLimiter, to_goodput_bytes_per_s
from services.cluster.links.link_conditions import ActiveLinkEvents
from services.plan import NodePlan, Plan
from services.runtime.clock import Clock
from services.transport.shaping import FluidModelLinkShaping, NodeLinks, PathDelayShaping, TransportShaping


def make_link_shaping(
    plan: Plan, node: NodePlan, clock: Clock, link_conditions: ActiveLinkEvents | None, link_state_file: Path | None
) -> TransportShaping | None:
    """Return the settings with which a node's transport shapes the links of the node.

    Return None if the kernel shapes all links. Without containers the transport shapes everything: rates, shared links
    and delays. Rates are virtual, as the clock.

    Args:
        plan: plan of the trial.
        node: plan of the node.
        clock: clock of the node.
        link_conditions: conditions of the links, which events change; None where the kernel shapes rates.
        link_state_file: file with the state of the shared links, used by all node processes; None for a single process.
    """
    if link_conditions is not None:
        cells = AtomicFloatFile(link_state_file) if link_state_file else None
        shared_links = [
            RateLimiter(
                to_goodput_bytes_per_s(link.rate_bps), cells.number_at(number) if cells else InProcessAtomicFloat()
            )
            for number, link in enumerate(plan.network.shared_links)
        ]
        rates_bps = (node.uplink_bps, node.downlink_bps)
        uplink, downlink = (RateLimiter(to_goodput_bytes_per_s(rate_bps)) for rate_bps in rates_bps)
        ports = NodeLinks(uplink, downlink, shared_links)
        return FluidModelLinkShaping(
            node.name,
            ports,
            plan.network,
            plan.seed,
            clock,
            link_conditions,
            plan.longest_message_bytes,
            plan.message_timeout_s,
        )
    return PathDelayShaping(node.name, plan.network, plan.seed, clock) if plan.delay_mechanism == "transport" else None
