"""What do engines enforce whose transport shapes the links? The record of `local` and `simulated` trials."""

from collections.abc import Iterator, Mapping

from compose.engines.base import Shaped
from services.cluster.events import LinkChange
from services.plan import COORDINATOR, NodePlan, Plan

NOT_EMULATED = "none"  # the rung of what is declared and does not happen


def shaped(plan: Plan, rung: str) -> dict[str, Shaped]:
    """What happens to each node's messages.

    The fluid model has rates, shared pipes, delays and their variation. It loses nothing, and its queues have no end,
    so neither losses nor the size of a buffer mean anything in it.

    Args:
        plan: of the trial.
        rung: `transport`, or `fluid` where time is virtual.
    """
    return {
        node.name: Shaped(
            rung=rung,
            uplink_bps=node.uplink_bps,
            downlink_bps=node.downlink_bps,
            rungs={name: NOT_EMULATED if name in ("loss", "buffer") else rung for name in _declared(plan, node)},
        )
        for node in plan.nodes
        if node.name != COORDINATOR
    }


def refusal(plan: Plan, shaping: Mapping[str, Shaped]) -> str | None:
    """Why a strict trial can't run: what is declared and not emulated; None when it can."""
    if not plan.strict:
        return None
    missing = sorted({name for node in shaping.values() for name, rung in node.rungs.items() if rung == NOT_EMULATED})
    if not missing:
        return None
    return f"strict, and engine {plan.engine} does not emulate {' and '.join(missing)}; engine docker may"


def _declared(plan: Plan, node: NodePlan) -> Iterator[str]:
    """What the plan says of a node's messages: rate, pipes, delay, loss, buffer."""
    changes = [event.what for event in plan.events if isinstance(event.what, LinkChange) and node.name in event.what.of]
    paths = [path for path in plan.network.paths if node.name in (path.source, path.target)]
    if node.uplink_bps or node.downlink_bps or any(change.uplink or change.downlink for change in changes):
        yield "rate"
    if any(node.name in pipe.sources + pipe.targets for pipe in plan.network.pipes):
        yield "pipes"
    if any(path.delay_s for path in paths) or any(change.delay for change in changes):
        yield "delay"
    if any(path.losses for path in paths) or any(change.loss for change in changes):
        yield "loss"
    if node.buffer_bytes is not None:
        yield "buffer"
