"""Which of many comparisons still hold when all were looked at?"""

import numpy as np

from analysis.statistics.centre import Floats


def holm(chances: Floats) -> Floats:
    """Adjusted p-values in the order given: below 0.05 means 5 % for the whole family, whatever is true of it.

    The k-th smallest of m counts (m - k + 1) times, and never less than one before it
    (Holm, A simple sequentially rejective multiple test procedure, 1979).
    """
    order = np.argsort(chances, kind="stable")
    stepped = np.maximum.accumulate(chances[order] * np.arange(chances.size, 0, -1))
    adjusted = np.empty_like(stepped)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted
