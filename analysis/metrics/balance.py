"""Balance points of a speedup curve: the numbers of workers that are worth their cost, by several rules."""

from dataclasses import dataclass

import numpy as np

from analysis.metrics.speedup import SpeedupCurve
from analysis.statistics.balance import choose_worker_counts


@dataclass(frozen=True)
class BalancePoint:
    """The number of workers that a balance rule chooses for one strategy under one condition."""

    strategy: str
    rule: str
    workers: int
    interval: tuple[int, int] | None  # 95 %, from resampled repeats; None where nothing was repeated
    condition: str


def balance_points(curve: SpeedupCurve) -> tuple[BalancePoint, ...]:
    """Return the number of workers that each balance rule chooses on a speedup curve.

    A rule that chooses nothing is left out. A curve with a single point has no balance points.
    """
    worker_counts = [point.workers for point in curve.points]
    speedup = np.array([point.speedup for point in curve.points])
    draws = np.array([curve.draws[workers] for workers in worker_counts]).T if curve.draws else None
    return tuple(
        BalancePoint(curve.strategy, choice.rule, choice.workers, choice.interval, curve.condition)
        for choice in choose_worker_counts(worker_counts, curve.base.workers, speedup, draws)
    )
