"""Faults that end nodes: whether a trial goes on without a node, and why a trial ended."""

from collections.abc import Iterable

from services.cluster.events import PlannedEvent
from services.cluster.node_faults import COORDINATOR
from services.plan.plan import Plan


def tolerates_lost_node(plan: Plan, node_name: str) -> bool:
    """Return whether the trial goes on when this node is lost; otherwise the trial ends."""
    if not plan.recovery.changes_membership or node_name == COORDINATOR:
        return False
    return plan.node_plan(node_name).role == "worker" or plan.recovery.on_failure == "restore"


def restart_delay_s(plan: Plan, event: PlannedEvent) -> float | None:
    """Return the virtual seconds after which nodes that a fault has ended are started again; None: never.

    The fault itself starts them again, or the policy of the trial for lost nodes does.
    """
    fault = event.node_fault
    if fault.end_action is not None or not fault.ends_nodes:
        return fault.lasts
    return plan.recovery.restart_delay if plan.recovery.restarts_workers else None


def explain_declared_loss(event: PlannedEvent, node_name: str) -> str:
    """Return why a trial ended, as the reason in its status, such as `worker-1 was killed at step 30, …`."""
    return f"{node_name} {event.node_fault.effect} {describe_moment(event)}"


def explain_active_faults(faults_with_nodes: Iterable[tuple[PlannedEvent, Iterable[str]]]) -> str:
    """Return which nodes are away when a trial ends with an error, as the end of the error's text; empty if none is."""
    return "".join(
        f"; {name} {event.node_fault.effect} {describe_moment(event)}"
        for event, node_names in faults_with_nodes
        for name in node_names
    )


def describe_moment(event: PlannedEvent) -> str:
    """Return when an event was planned, for how long, and where it is declared, as a part of a sentence."""
    moment = f"at {event.time_s:.6g} s" if event.time_s is not None else f"at step {event.step}"
    duration = f" for {event.change.lasts}" if event.change.lasts is not None else ""
    return f"{moment}{duration}, as declared in events[{event.declared_index}]"
