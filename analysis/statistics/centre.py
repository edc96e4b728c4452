"""Olympic mean and median of a few runs, for times that may be infinite."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def olympic_mean(run_values: Floats, dropped_per_side: int = 1) -> Floats:
    """Return the olympic mean: the mean without the `dropped_per_side` smallest and largest values.

    It is taken along the last axis, and is the plain mean where that would leave no value. Source: MLPerf Training
    rules. A run that missed its target has an infinite value, which may be one of the dropped values.
    """
    if run_values.shape[-1] > 2 * dropped_per_side:
        run_values = np.sort(run_values, axis=-1)[..., dropped_per_side : run_values.shape[-1] - dropped_per_side]
    return np.asarray(run_values.mean(axis=-1))


def median_of_maybe_infinite(run_values: Floats) -> float:
    """Return the median of values that may be infinite.

    The result is infinite if more than half of the values are infinite (runs that missed the target), or one of the two
    middle values of an even number.
    """
    ranked = np.sort(run_values)
    return float((ranked[(run_values.size - 1) // 2] + ranked[run_values.size // 2]) / 2)
