"""Faults that end nodes: whether a trial goes on without a node, and why a trial ended."""

from collections.abc import Iterable

from services.cluster.events import PlannedEvent
from services.plan.plan import Plan


def tolerates_lost_node(plan: Plan, node_name: str) -> bool:  # noqa: ARG001 - the policies to come depend on both
    """Return whether the trial goes on when this node is lost; otherwise the trial ends."""
    return False


def explain_declared_loss(event: PlannedEvent, node_name: str) -> str:
    """Return why a trial ended, as the reason in its status, such as `worker-1 was killed at step 30, …`."""
    return f"{node_name} {event.node_fault.effect} {_describe_moment(event)}"


def explain_active_faults(faults_with_nodes: Iterable[tuple[PlannedEvent, Iterable[str]]]) -> str:
    """Return which nodes are away when a trial ends with an error, as the end of the error's text; empty if none is."""
    return "".join(
        f"; {name} {event.node_fault.effect} {_describe_moment(event)}"
        for event, node_names in faults_with_nodes
        for name in node_names
    )


def _describe_moment(event: PlannedEvent) -> str:
    moment = f"at {event.time_s:.6g} s" if event.time_s is not None else f"at step {event.step}"
    duration = f" for {event.change.lasts}" if event.change.lasts is not None else ""
    return f"{moment}{duration}, as declared in events[{event.declared_index}]"
