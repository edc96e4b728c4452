"""Holm's correction of p-values for the number of comparisons."""

import numpy as np

from analysis.statistics.centre import Floats


def holm_adjust(p_values: Floats) -> Floats:
    """Return p-values adjusted by Holm's method for the number of comparisons.

    The order of the p-values is kept. An adjusted value below 0.05 keeps the chance of one or more false positives
    among all comparisons below 5 %. The k-th smallest of m p-values is multiplied by m - k + 1, and is never less than
    the adjusted one before it (Holm, A simple sequentially rejective multiple test procedure, 1979).
    """
    order = np.argsort(p_values, kind="stable")
    stepped = np.maximum.accumulate(p_values[order] * np.arange(p_values.size, 0, -1))
    adjusted = np.empty_like(stepped)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted
