"""How far did training get?"""

from analysis.reading.run_table import TrialTable


def steps_done(trial: TrialTable) -> int:
    """Steps of the worker that did most; synchronous workers all did this many."""
    return int(trial.steps.groupby("node").size().max()) if len(trial.steps) else 0


def samples_done(trial: TrialTable) -> int:
    """Samples over all workers and steps."""
    return int(trial.steps["samples"].sum())


def samples_per_second(trial: TrialTable) -> float | None:
    """Samples over all workers divided by the seconds from `run_start` to `run_stop`, evaluation included."""
    if not trial.seconds:
        return None
    return samples_done(trial) / trial.seconds
