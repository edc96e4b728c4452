"""How many workers are worth their cost on this curve? The rules stand in `analysis.statistics.balance`."""

from dataclasses import dataclass

import numpy as np

from analysis.metrics.speedup import Curve
from analysis.statistics.balance import ALPHA, RULES, THRESHOLD, cheapest, efficient, knee, picks

__all__ = ["ALPHA", "RULES", "THRESHOLD", "Balance", "balance", "cheapest", "efficient", "knee"]


@dataclass(frozen=True)
class Balance:
    """The number of workers that a rule picks; the interval comes from resampling the repeats."""

    strategy: str
    rule: str
    workers: int
    interval: tuple[int, int] | None
    condition: str


def balance(curve: Curve) -> tuple[Balance, ...]:
    """What each rule picks on this curve; a rule without an answer is left out, and one point leaves no choice."""
    counts = [point.workers for point in curve.points]
    speedup = np.array([point.speedup for point in curve.points])
    draws = np.array([curve.draws[workers] for workers in counts]).T if curve.draws else None
    return tuple(
        Balance(curve.strategy, pick.rule, pick.workers, pick.interval, curve.condition)
        for pick in picks(counts, curve.base.workers, speedup, draws)
    )
