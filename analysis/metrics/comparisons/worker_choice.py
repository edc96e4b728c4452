"""Numbers of workers that are worth their cost (balance points).

Several rules choose such numbers from the speedup curve.
"""

from dataclasses import dataclass

import numpy as np

from analysis.metrics.speedup import SpeedupCurve
from analysis.statistics.worker_count_rules import choose_worker_counts


@dataclass(frozen=True)
class RuleAndWorkerCount:
    """Number of workers that one rule chooses from the speedup curve of a strategy."""

    strategy: str
    rule: str
    workers: int
    interval: (
        tuple[int, int] | None
    )  # 95 %, from random draws of the curve; None where a trial ran once or missed its target
    condition: str


def choose_worker_counts_of_curve(speedup_curve: SpeedupCurve) -> tuple[RuleAndWorkerCount, ...]:
    """Return the number of workers that each rule chooses from a speedup curve.

    A rule chooses, for example, the knee of the curve.

    A rule that chooses nothing is left out. A curve with a single point has no balance points.
    """
    worker_counts = [point.workers for point in speedup_curve.points]
    speedup = np.array([point.speedup for point in speedup_curve.points])
    draws = np.array([speedup_curve.draws[workers] for workers in worker_counts]).T if speedup_curve.draws else None
    return tuple(
        RuleAndWorkerCount(
            speedup_curve.strategy, choice.rule, choice.workers, choice.interval, speedup_curve.condition
        )
        for choice in choose_worker_counts(worker_counts, speedup_curve.base.workers, speedup, draws)
    )
