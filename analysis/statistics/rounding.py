"""Rounding errors of two measured values: the time to the target, and the samples to the target.

A target is reached at an evaluation, so times and samples to target are rounded up to the next evaluation.
"""

import numpy as np

from analysis.statistics.centre import Floats


def rounding_variance(run_values: Floats, rounding_step: float) -> float:
    """Return the variance of the mean of values that is caused by rounding them up.

    Values are rounded up to multiples of `rounding_step`. The variance is step^2/12 per run (uniform distribution). It
    is divided by the number of runs, except where all runs lie within one step of each other and so have the same
    rounding error.
    """
    is_shared = np.ptp(run_values) <= rounding_step
    return rounding_step**2 / 12 / (1 if is_shared else run_values.size)


def log_rounding_variance(times: Floats, rounding_step: float) -> float:
    """Return the variance of the mean log time that is caused by rounding times up to the next evaluation."""
    return rounding_variance(times, rounding_step) / float(times.mean()) ** 2
