"""Attempts at training steps: after a failure, training may repeat steps that workers had finished."""

import numpy as np
import pandas as pd

from analysis.metrics.worker_seconds import list_membership_changes
from analysis.reading.run_table import TrialLogTables

CLOCK_RESOLUTION_S = 1e-5  # times of recoveries and of steps are rounded differently


def number_step_attempts(trial: TrialLogTables) -> "pd.Series[int]":
    """Return for each row of the step table the number of the attempt at its step.

    Rows of the same step and attempt belong together. In synchronous training, the attempt is the number of membership
    changes before the step began. Asynchronous workers continue at different moments, so the attempt is the number of
    earlier rows of the same worker and step.
    """
    steps = trial.steps
    if trial.plan.sync_or_async != "synchronous":
        by_start = steps.sort_values("start_s", kind="stable")
        return by_start.groupby(["node", "step"], observed=True).cumcount().reindex(steps.index)
    attempts = pd.Series(0, index=steps.index)
    changes = list_membership_changes(trial.membership)
    if changes:
        for name, rows in steps.groupby("node", observed=True):
            ends_s = np.sort([change.recovery_end_s(str(name)) for change in changes])
            starts_s = rows["start_s"].to_numpy(float) + CLOCK_RESOLUTION_S
            attempts[rows.index] = np.searchsorted(ends_s, starts_s, side="right")
    return attempts
