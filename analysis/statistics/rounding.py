"""How much of a mean is rounding? A target is met at an evaluation, so what it takes is rounded up to the next one."""

import numpy as np

from analysis.statistics.centre import Floats


def rounding(values: Floats, step: float) -> float:
    """The variance of the runs' mean that rounding to a `step` gives, whatever they show: step^2/12 per run (uniform).

    Runs within one step of each other share their rounding, and no number of them takes it away; others average it out.
    """
    shared = np.ptp(values) <= step
    return step**2 / 12 / (1 if shared else values.size)
