"""Conflicts between the recovery of a trial after a loss and the other keys of a scenario that trains a model."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from services.schema.conflicts import KeyConflict

if TYPE_CHECKING:
    from services.scenario.scenario import Scenario


def find_recovery_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield the conflicts of `recovery` with the strategies and the data of a scenario without a sweep."""
    recovery = scenario.recovery
    if not recovery.changes_membership:
        return
    policy, workers = f"on_failure: {recovery.on_failure}", scenario.cluster.workers
    for label, strategy in scenario.strategies.items():
        reason = strategy.explain_recovery_limit()
        if not reason and recovery.on_failure != "restore" and workers > 1:
            reason = strategy.explain_worker_count_conflict(workers - 1)
        if reason:
            message = f"strategy {label} can't use {policy}: {reason}, or write on_failure: abort"
            yield KeyConflict(("recovery", "on_failure"), message)
    if scenario.training_workload.partition.kind != "iid":
        message = (
            f"{policy} divides the batches of a lost worker among the others, but with partition "
            f"{scenario.training_workload.partition.kind} only this worker has its samples; use partition: "
            "{kind: iid}, or on_failure: abort"
        )
        yield KeyConflict(("recovery", "on_failure"), message)
