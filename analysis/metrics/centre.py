"""What is the centre of a few runs, and how sure is it?"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

DRAWS = 2000  # enough for the 2.5 % and 97.5 % points to settle to about 2 % of the interval's width
LEVEL = 95  # percent


def olympic_mean(values: Floats) -> Floats:
    """Mean along the last axis without the fastest and the slowest; the plain mean below three values.

    Source: MLPerf Training rules. A run that missed its target is infinite and may be the one dropped.
    """
    if values.shape[-1] >= 3:  # noqa: PLR2004 -- dropping two must leave one
        values = np.sort(values, axis=-1)[..., 1:-1]
    return np.asarray(values.mean(axis=-1))


def resampled(values: Floats, seed: int) -> Floats:
    """DRAWS olympic means of values drawn with replacement (Efron's bootstrap)."""
    picks = np.random.default_rng(seed).integers(0, values.size, size=(DRAWS, values.size))
    return olympic_mean(values[picks])


def interval(draws: Floats) -> tuple[float, float]:
    """The central 95 % of the draws (percentile bootstrap)."""
    low, high = np.percentile(draws, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return float(low), float(high)
