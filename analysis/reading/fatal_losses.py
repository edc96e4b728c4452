"""Declared losses of nodes that ended a trial.

The coordinator logs no `node_lost` for them: the engine ends the trial at once, or the coordinator itself is lost. The
engine's record of applied events has their nodes and times.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from analysis.reading.plan_view import NODE_LOSS_EVENTS
from analysis.reading.run_table import TrialLogTables
from services.cluster.events import PlannedEvent
from services.plan.lost_nodes import describe_moment, explain_declared_loss


@dataclass(frozen=True)
class FatalLoss:
    """Node that a declared event ended, and whose loss the coordinator has not logged when the trial ended."""

    node: str
    time_s: float  # since the start of training, when the engine ended the node
    cause: str  # such as "was killed at step 50, as declared in events[0]"


def find_declared_end(trial: TrialLogTables) -> str:
    """Return why a declared loss of a node ended the trial, as its engine reports it; empty if none did.

    The engine must have recorded that it applied the event to the node.
    """
    reason = str(trial.status.get("reason") or "")
    if trial.status.get("status") != "failed" or not reason:
        return ""
    causes = (explain_declared_loss(event, node) for event, node, _ in _list_applied_losses(trial))
    return next((cause for cause in causes if reason == cause or reason.startswith(f"{cause}; ")), "")


def is_explained_by_declared_loss(trial: TrialLogTables) -> bool:
    """Return whether a declared loss is the only reason why the trial failed: the engine reports no other error."""
    cause = find_declared_end(trial)
    return bool(cause) and trial.status.get("reason") == cause


def list_fatal_losses(trial: TrialLogTables) -> list[FatalLoss]:
    """Return the declared losses that the coordinator could not log because one of them ended the trial."""
    if not find_declared_end(trial):
        return []
    logged = trial.membership.losses
    return [
        FatalLoss(node, time_s, f"{event.node_fault.effect} {describe_moment(event)}")
        for event, node, time_s in _list_applied_losses(trial)
        if not any(loss.node == node and loss.time_s >= time_s for loss in logged)
    ]


def _list_applied_losses(trial: TrialLogTables) -> Iterator[tuple[PlannedEvent, str, float]]:
    """Yield event, node and time of each loss of a node that the engine recorded, in the order of time."""
    planned = {event.number: event for event in trial.plan.events if event.change.kind in NODE_LOSS_EVENTS}
    rows = trial.events[(trial.events["phase"] == "begin") & trial.events["number"].isin(list(planned))]
    rows = rows.dropna(subset=["applied_s"]).sort_values("applied_s", kind="stable")
    for number, nodes, time_s in zip(rows["number"], rows["nodes"], rows["applied_s"], strict=True):
        for node in nodes:
            yield planned[int(number)], str(node), float(time_s)
