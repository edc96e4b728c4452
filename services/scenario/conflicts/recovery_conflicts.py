"""Conflicts between the recovery of a trial after a loss and the other keys of a scenario that trains a model."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from services.cluster.disk_full import DiskFull
from services.scenario.recovery import RecoverySettings
from services.schema.conflicts import KeyConflict
from services.strategies import Strategy
from services.strategies.base import ExchangePattern

if TYPE_CHECKING:
    from services.scenario.scenario import Scenario


def find_recovery_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield the conflicts of `recovery` with strategies, data and events of a scenario without a sweep."""
    yield from _find_disk_conflicts(scenario)
    yield from _find_interval_conflict(scenario.recovery)
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


def _find_interval_conflict(recovery: RecoverySettings) -> Iterator[KeyConflict]:
    """Yield a conflict unless checkpoints have exactly one of the keys by which their interval is declared."""
    checkpoint = recovery.checkpoint
    if checkpoint is None or (checkpoint.steps is None) != (checkpoint.interval is None):
        return
    message = "one of steps and interval is required; write for example checkpoint: {steps: 20} or {interval: 30s}"
    if checkpoint.steps is not None:
        message = "steps and interval exclude each other; remove one"
    yield KeyConflict(("recovery", "checkpoint"), message)


def _find_disk_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict for every full disk to which no node writes."""
    for k, event in enumerate(scenario.events):
        if isinstance(event, DiskFull) and scenario.recovery.checkpoint is None:
            message = (
                f"the event {event.kind} keeps nodes from writing checkpoints, but this scenario declares none; "
                "write for example recovery: {checkpoint: {steps: 20}}, or remove the event"
            )
            yield KeyConflict(("events", k, "kind"), message)


def _explain_strategy_limit(scenario: "Scenario", strategy: Strategy) -> str:
    """Return why a strategy can't be used with the recovery of a scenario, and the remedy; empty if it can."""
    recovery, workers = scenario.recovery, scenario.cluster.workers
    if reason := strategy.explain_recovery_limit():
        return reason
    phases = strategy.training_phases()
    if phases.switch and recovery.needs_stored_state:
        reason = f"{strategy.kind} has no stored state with which a node begins"
        return f"{reason}; use on_failure: continue without a checkpoint"
    pattern = phases.first.describe_worker_exchange()
    remedy = "remove the checkpoint" if recovery.on_failure in ("abort", "continue") else "use on_failure: continue"
    if pattern.evaluation_sum is not None and recovery.needs_stored_state:
        return f"a worker that starts again has no neighbours to average its parameters with; {remedy}"
    if not pattern.is_synchronous and recovery.needs_stored_state:
        return f"asynchronous workers have no step in common to continue from; {remedy}"
    return (
        _explain_checkpoint_limit(recovery, pattern)
        or _explain_rejoin_limit(recovery, pattern, strategy, workers)
        or _explain_server_limit(strategy)
    )


def _explain_server_limit(strategy: Strategy) -> str:
    """Return why several servers of a strategy can't go on without a lost worker, and the remedy; empty if they can.

    Asynchronous servers whose updates need the gradients of several workers could wait for each other: the first server
    holds back last replies to workers whose gradients another server needs for its next update.
    """
    for phase in strategy.training_phases():
        algorithm = phase.server_algorithm()
        if algorithm is None or algorithm.servers == 1:
            continue
        sync = algorithm.synchroniser.describe_worker_sync()
        if sync.runs_in_rounds and not sync.is_synchronous:
            return (
                f"under synchrony {algorithm.synchroniser.kind} with several servers, the end of the training could "
                "deadlock: the first server holds back its last replies, and another server waits for pushes of the "
                "same workers; use servers: 1"
            )
    return ""


def _explain_checkpoint_limit(recovery: RecoverySettings, pattern: ExchangePattern) -> str:
    """Return why no checkpoint can be written after the declared steps, and the remedy; empty if it can."""
    period = pattern.exchange_period
    if recovery.checkpoint is None or recovery.checkpoint.steps is None or recovery.checkpoint.steps % period == 0:
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
