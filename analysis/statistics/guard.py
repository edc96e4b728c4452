"""Does a strategy learn from fewer samples than it should need?

MLCommons holds results against reference convergence points, since who trains on fewer samples than the reference has
most often changed the problem. The same here: such a strategy is flagged "check for a bug", not celebrated.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from analysis.statistics.centre import Floats
from analysis.statistics.rounding import rounding

CHANCE = 0.05  # as in MLCommons' check


@dataclass(frozen=True)
class Convergence:
    """Samples-to-target beside the reference's."""

    ratio: float  # mean / mean of the reference; below 1 means fewer
    p_value: float  # one-sided, of needing no fewer; `holm` adjusts many

    @property
    def suspicious(self) -> bool:
        """Whether it needs significantly fewer."""
        return self.p_value < CHANCE

    @property
    def advice(self) -> str:
        """What to do about it; empty where nothing is odd."""
        return "check for a bug" if self.suspicious else ""


def convergence(samples: Floats, reference: Floats, steps: tuple[float, float] = (0.0, 0.0)) -> Convergence:
    """One-sided t-test for unequal variances (Welch 1947); runs that missed are infinite, and are never too good.

    `steps`: what either side's samples are rounded up to, the samples between two evaluations. Equal runs are as
    uncertain as their rounding; where nothing is rounded (0) they are exact.

    Raises:
        ValueError: the reference did not converge, or either side has a single run, of which no spread is known.
    """
    if not np.isfinite(reference).all():
        raise ValueError("a reference that missed its target is none")
    if min(samples.size, reference.size) == 1:
        raise ValueError("a single run has no spread to test by")
    if not np.isfinite(samples).all():
        return Convergence(np.inf, 1.0)
    gap = float(samples.mean() - reference.mean())
    return Convergence(float(samples.mean() / reference.mean()), _welch(gap, (samples, reference), steps))


def _welch(gap: float, sides: tuple[Floats, Floats], steps: tuple[float, float]) -> float:
    parts = np.array(
        [max(each.var(ddof=1) / each.size, rounding(each, step)) for each, step in zip(sides, steps, strict=True)]
    )
    if parts.sum() == 0:
        return float(gap >= 0)
    freedom = parts.sum() ** 2 / (parts**2 / [each.size - 1 for each in sides]).sum()
    return float(stdtr(freedom, gap / np.sqrt(parts.sum())))
