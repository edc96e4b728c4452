"""Seconds in which workers write checkpoints."""

from collections.abc import Iterable

from analysis.reading.logs.membership import CheckpointFailure, CheckpointWrite
from analysis.reading.run_table import TrialLogTables


def mean_checkpoint_s(trial: TrialLogTables) -> float | None:
    """Return the mean seconds of a checkpoint of a worker; None if no worker wrote one."""
    seconds = _seconds_of_workers(trial, trial.membership.checkpoints)
    return sum(seconds) / len(seconds) if seconds else None


def mean_checkpoint_s_per_step(trial: TrialLogTables) -> float | None:
    """Return the seconds in which workers write checkpoints, divided by the number of all their steps.

    Checkpoints are written between steps. Those that could not be written count, too. Return None without steps or
    checkpoints.
    """
    seconds = _seconds_of_workers(trial, trial.membership.checkpoint_attempts)
    return sum(seconds) / len(trial.steps) if seconds and len(trial.steps) else None


def _seconds_of_workers(trial: TrialLogTables, attempts: Iterable[CheckpointWrite | CheckpointFailure]) -> list[float]:
    workers = {node.name for node in trial.plan.nodes if node.role == "worker"}
    return [attempt.seconds for attempt in attempts if attempt.node in workers]
