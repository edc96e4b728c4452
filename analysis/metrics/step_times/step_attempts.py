"""Attempts at training steps: after a failure, training may repeat steps that workers had finished."""

import numpy as np
import pandas as pd

from analysis.metrics.worker_seconds import find_synchronous_end_s, list_membership_changes
from analysis.reading.run_table import TrialLogTables

CLOCK_RESOLUTION_S = 1e-5  # times of recoveries and of steps are rounded differently


def number_step_attempts(trial: TrialLogTables) -> "pd.Series[int]":
    """Return for each row of the step table the number of the attempt at its step.

    Rows of the same step and attempt belong together. In synchronous training, the attempt is the number of membership
    changes before the step began. Asynchronous workers continue at different moments, so the attempt is the number of
    earlier rows of the same worker and step.
    """
    steps, synchronous_end_s = trial.steps, find_synchronous_end_s(trial)
    is_synchronous = steps["start_s"] < synchronous_end_s - CLOCK_RESOLUTION_S
    attempts = pd.Series(0, index=steps.index)
    by_start = steps[~is_synchronous].sort_values("start_s", kind="stable")
    attempts.update(by_start.groupby(["node", "step"], observed=True).cumcount())
    changes = list_membership_changes(trial.membership)
    if changes:
        for name, rows in steps[is_synchronous].groupby("node", observed=True):
            ends_s = np.sort([change.recovery_end_s(str(name)) for change in changes])
            starts_s = rows["start_s"].to_numpy(float) + CLOCK_RESOLUTION_S
            attempts[rows.index] = np.searchsorted(ends_s, starts_s, side="right")
    return attempts
