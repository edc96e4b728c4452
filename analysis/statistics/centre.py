"""What is the centre of a few runs?"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def olympic_mean(values: Floats, dropped: int = 1) -> Floats:
    """Mean along the last axis without the `dropped` fastest and slowest; the plain mean where that would leave none.

    Source: MLPerf Training rules. A run that missed its target is infinite and may be the one dropped.
    """
    if values.shape[-1] > 2 * dropped:
        values = np.sort(values, axis=-1)[..., dropped : values.shape[-1] - dropped]
    return np.asarray(values.mean(axis=-1))


def median(values: Floats) -> float:
    """The middle run by rank: half of the runs may have missed (infinite) before it is infinite too.

    Of an even number the mean of the two in the middle, which is infinite when one of them is.
    """
    ranked = np.sort(values)
    return float((ranked[(values.size - 1) // 2] + ranked[values.size // 2]) / 2)
