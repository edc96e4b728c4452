"""Conflicts between the recovery of a trial after a loss and the other keys of a scenario that trains a model."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from services.scenario.recovery import RecoverySettings
from services.schema.conflicts import KeyConflict
from services.strategies import Strategy
from services.strategies.base import ExchangePattern

if TYPE_CHECKING:
    from services.scenario.scenario import Scenario


def find_recovery_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield the conflicts of `recovery` with the strategies and the data of a scenario without a sweep."""
    recovery, key_path = scenario.recovery, ("recovery", "on_failure")
    policy = f"on_failure: {recovery.on_failure}"
    if recovery.on_failure == "restore" and recovery.checkpoint is None:
        yield KeyConflict(key_path, f"{policy} needs checkpoints; write for example checkpoint: {{steps: 20}}")
    if not recovery.is_active:
        return
    for label, strategy in scenario.strategies.items():
        if reason := _explain_strategy_limit(scenario, strategy):
            message = f"strategy {label} can't use {policy}: {reason}, or write on_failure: abort"
            if not recovery.changes_membership:
                message = f"strategy {label} can't write checkpoints: {reason}, or remove recovery.checkpoint"
            yield KeyConflict(key_path if recovery.changes_membership else ("recovery", "checkpoint"), message)
    if recovery.on_failure in ("continue", "rejoin") and scenario.training_workload.partition.kind != "iid":
        message = (
            f"{policy} divides the batches of a lost worker among the others, but with partition "
            f"{scenario.training_workload.partition.kind} only this worker has its samples; use partition: "
            "{kind: iid}, or on_failure: restore or abort"
        )
        yield KeyConflict(key_path, message)


def _explain_strategy_limit(scenario: "Scenario", strategy: Strategy) -> str:
    """Return why a strategy can't be used with the recovery of a scenario, and the remedy; empty if it can."""
    recovery, workers = scenario.recovery, scenario.cluster.workers
    if reason := strategy.explain_recovery_limit():
        return reason
    pattern = strategy.training_phases().first.describe_worker_exchange()
    if pattern.evaluation_sum is not None and recovery.needs_stored_state:
        return "a worker that starts again has no neighbours to average its parameters with; use on_failure: continue"
    if not pattern.is_synchronous and recovery.needs_stored_state:
        return "asynchronous workers have no step in common to continue from; use on_failure: continue"
    return _explain_checkpoint_limit(recovery, pattern) or _explain_rejoin_limit(recovery, pattern, strategy, workers)


def _explain_checkpoint_limit(recovery: RecoverySettings, pattern: ExchangePattern) -> str:
    """Return why no checkpoint can be written after the declared steps, and the remedy; empty if it can."""
    period = pattern.exchange_period
    if recovery.checkpoint is None or recovery.checkpoint.steps % period == 0:
        return ""
    return (
        f"checkpoint.steps ({recovery.checkpoint.steps}) must be a multiple of its period ({period}), because workers "
        f"have a common state only after an exchange; write for example steps: {10 * period}"
    )


def _explain_rejoin_limit(
    recovery: RecoverySettings, pattern: ExchangePattern, strategy: Strategy, workers: int
) -> str:
    """Return why a strategy can't go on after the loss of a worker, or with one that joins again; empty if it can."""
    if recovery.on_failure == "rejoin" and pattern.has_compressor_state:
        return (
            f"compressor {pattern.compressor.kind} keeps what it has not sent yet, which is lost with a worker; use "
            "on_failure: restore, or another compressor"
        )
    if recovery.on_failure in ("continue", "rejoin") and workers > 1:
        reason, _, _ = strategy.explain_worker_count_conflict(workers - 1).partition(";")
        return f"after the loss of a worker, {reason}; use another strategy" if reason else ""
    return ""
