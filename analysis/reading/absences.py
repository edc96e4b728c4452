"""Intervals in which a node takes no part in the training: it was killed or evicted, and has not joined again."""

from collections.abc import Iterator
from math import inf, isfinite

from analysis.reading.run_table import TrialLogTables


def find_absences(trial: TrialLogTables, node_name: str) -> list[tuple[float, float]]:
    """Return the intervals in which a node is no member, in virtual seconds since the start of training.

    An interval begins at the last heartbeat before a loss, at the kill, or at a membership epoch without the node. It
    ends when the node, after it has recovered, begins its first step. A node without steps ends it at its recovery. The
    interval is infinite if the node never joins again. Intervals may overlap.
    """
    steps = trial.steps[trial.steps["node"] == node_name]
    starts_s = steps["start_s"].astype(float).sort_values()
    intervals = []
    for begin_s, known_s in _find_ends_of_membership(trial, node_name):
        recoveries_s = (each.time_s for each in trial.membership.recoveries if each.node == node_name)
        recovery_s = min((time_s for time_s in recoveries_s if time_s > known_s), default=inf)
        later_starts_s = starts_s[starts_s >= recovery_s]
        intervals.append((begin_s, float(later_starts_s.iloc[0]) if len(later_starts_s) else recovery_s))
    return intervals


def _find_ends_of_membership(trial: TrialLogTables, node_name: str) -> Iterator[tuple[float, float]]:
    """Yield when a node ended to be a member: the earliest possible moment, and the moment at which it was known."""
    membership = trial.membership
    for loss in membership.losses:
        if loss.node == node_name:
            yield loss.time_s - loss.silent_s, loss.recovery_start_s if loss.is_back else loss.time_s
    is_worker = any(node.name == node_name and node.role == "worker" for node in trial.plan.nodes)
    for epoch in membership.epochs:
        if is_worker and node_name not in epoch.workers:
            yield epoch.time_s, epoch.time_s
    fatal_numbers = {event.number for event in trial.plan.events if event.is_node_fault and event.node_fault.ends_nodes}
    kills = trial.events[trial.events["number"].isin(fatal_numbers) & (trial.events["phase"] == "begin")]
    for names, killed_s in zip(kills["nodes"], kills["applied_s"].astype(float), strict=True):
        if node_name in names and isfinite(killed_s):
            yield killed_s, killed_s
