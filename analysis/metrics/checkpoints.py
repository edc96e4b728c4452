"""Seconds in which workers write checkpoints."""

from analysis.reading.run_table import TrialLogTables


def mean_checkpoint_s(trial: TrialLogTables) -> float | None:
    """Return the mean seconds of a checkpoint of a worker; None if no worker wrote one."""
    seconds = _worker_checkpoint_seconds(trial)
    return sum(seconds) / len(seconds) if seconds else None


def mean_checkpoint_s_per_step(trial: TrialLogTables) -> float | None:
    """Return the seconds in which workers write checkpoints, divided by the number of all their steps.

    Checkpoints are written between steps. Return None without steps or checkpoints.
    """
    seconds = _worker_checkpoint_seconds(trial)
    return sum(seconds) / len(trial.steps) if seconds and len(trial.steps) else None


def _worker_checkpoint_seconds(trial: TrialLogTables) -> list[float]:
    workers = {node.name for node in trial.plan.nodes if node.role == "worker"}
    return [write.seconds for write in trial.membership.checkpoints if write.node in workers]
