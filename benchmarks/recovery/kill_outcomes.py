"""Outcomes of the kills in a trial: when a loss was known, when the other workers continued, when all trained again."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pandas as pd

from analysis.metrics.worker_seconds import MembershipChange, list_membership_changes
from analysis.reading.run_table import TrialLogTables


@dataclass(frozen=True)
class KillOutcome:
    """One kill and what followed, in virtual seconds since the start of training.

    Moments that did not occur are None.
    """

    node: str
    killed_s: float  # when the kill was due; the engine sends SIGKILL afterwards, and before `ended_s`
    ended_s: float  # when the engine had seen the end of the process
    lost_s: float | None  # when the coordinator considered the node lost; None: the node joined again before
    continued_s: float | None  # when the last of the other workers continued without the node
    joined_s: float | None  # when the membership epoch with the restarted node began
    rejoined_s: float | None  # when the last worker continued in this epoch
    full_step_s: float | None  # when all workers of the plan had begun their first step together again

    @property
    def detection_s(self) -> float | None:
        """Seconds from the kill until the coordinator considered the node lost."""
        return _difference(self.lost_s, self.killed_s)

    @property
    def recovery_s(self) -> float | None:
        """Seconds from the kill until the others continued: detection and recovery."""
        return _difference(self.continued_s, self.killed_s)

    @property
    def absence_s(self) -> float | None:
        """Seconds from the kill until the membership epoch with the restarted node began."""
        return _difference(self.joined_s, self.killed_s)

    @property
    def join_s(self) -> float | None:
        """Seconds for which all workers stopped when the restarted node joined."""
        return _difference(self.rejoined_s, self.joined_s)

    @property
    def return_s(self) -> float | None:
        """Seconds from the kill until all workers of the plan had begun a step together again."""
        return _difference(self.full_step_s, self.killed_s)


def _difference(later_s: float | None, earlier_s: float | None) -> float | None:
    return None if later_s is None or earlier_s is None else later_s - earlier_s


def list_kill_outcomes(trial: TrialLogTables) -> list[KillOutcome]:
    """Return the outcome of every kill that ended a process, in the order of time."""
    changes = list_membership_changes(trial.membership)
    kills = sorted(_list_applied_kills(trial.events), key=lambda kill: kill[1])
    return [_describe_outcome(trial, changes, *kill) for kill in kills]


def _list_applied_kills(events: pd.DataFrame) -> Iterator[tuple[str, float, float]]:
    """Yield node, planned and applied time of the kills; a kill of a node that was away has no nodes."""
    begins = events[(events["phase"] == "begin") & (events["kind"] == "kill")]
    for nodes, planned_s, applied_s in zip(begins["nodes"], begins["planned_s"], begins["applied_s"], strict=True):
        for node in nodes:
            yield str(node), float(planned_s), float(applied_s)


def _describe_outcome(
    trial: TrialLogTables, changes: list[MembershipChange], node: str, killed_s: float, ended_s: float
) -> KillOutcome:
    later = [change for change in changes if change.epoch.time_s >= killed_s]
    joined = next((change for change in later if change.epoch.cause == f"{node} joined again"), None)
    lost = next((change for change in later if _find_loss(change, node) is not None), None)
    if lost and joined and joined.epoch.number < lost.epoch.number:
        lost = None  # of a later kill
    rejoined_s = None if joined is None else _last_recovery_s(joined, joined.recoveries)
    return KillOutcome(
        node=node,
        killed_s=killed_s,
        ended_s=ended_s,
        lost_s=None if lost is None else _find_loss(lost, node),
        continued_s=None if lost is None else _last_recovery_s(lost, set(lost.recoveries) - {node}),
        joined_s=None if joined is None else joined.epoch.time_s,
        rejoined_s=rejoined_s,
        full_step_s=None if joined is None else _first_common_step_s(trial, joined),
    )


def _find_loss(change: MembershipChange, node: str) -> float | None:
    """Return when the coordinator considered a node lost before a change; None if it did not."""
    return next((loss.time_s for loss in change.losses if loss.node == node and not loss.is_back), None)


def _last_recovery_s(change: MembershipChange, workers: Iterable[str]) -> float | None:
    return max((change.recoveries[worker].time_s for worker in workers), default=None)


def _first_common_step_s(trial: TrialLogTables, change: MembershipChange) -> float | None:
    """Return when all workers of the plan had begun their first step of an epoch; None if one of them never did."""
    workers = {node.name for node in trial.plan.nodes if node.role == "worker"}
    if set(change.epoch.workers) != workers:
        return None
    steps = trial.steps[trial.steps["start_s"] >= change.epoch.time_s]
    first_starts_s = steps.groupby("node", observed=True)["start_s"].min()
    return float(first_starts_s.max()) if set(first_starts_s.index) == workers else None
