"""Input of the checks: times, speedups and samples to target on several numbers of workers."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from analysis.statistics.centre import Floats
from analysis.statistics.intervals import Interval


@dataclass(frozen=True, eq=False)
class LossFactors:
    """Factors by which efficiency changes from the smallest to the largest number of workers.

    The product of hardware and statistical factor is the change of the efficiency. The draws show how uncertain both
    factors are; they are drawn together.
    """

    statistical: float  # samples to target of the smallest / of the largest number of workers
    drawn_hardware: Floats  # shape (draws,)
    drawn_statistical: Floats  # shape (draws,)


@dataclass(frozen=True, eq=False)
class MeasuredScaling:
    """Training times of one strategy or workload on increasing numbers of workers (or accelerators)."""

    name: str
    worker_counts: tuple[int, ...]  # in increasing order
    base_worker_count: int  # of the run that speedups are relative to
    times: tuple[float, ...]  # to the target, by number of workers
    time_intervals: tuple[Interval | None, ...]  # 95 %
    speedups: Floats  # shape (counts,)
    efficiency_intervals: tuple[Interval | None, ...]  # 95 %; None for the base
    drawn_speedups: Floats | None  # shape (draws, counts); None where a time has no interval
    speedup_ratio_interval: Interval | None  # 95 %, of the speedup on the most / on the fewest workers
    loss_factors: LossFactors | None
    time_unit: str = "s"
    worker_noun: str = "worker"
    communication_shares: tuple[float, float] | None = None  # of a step on the fewest and on the most workers
    untestable_reason: str = ""  # why no claim can be checked
    unknown_loss_reason: str = ""  # why the causes of a loss of efficiency are not known

    @classmethod
    def make_untestable(cls, name: str, reason: str) -> Self:
        """Return a scaling without times, with which no claim can be checked."""
        return cls(
            name=name,
            worker_counts=(),
            base_worker_count=1,
            times=(),
            time_intervals=(),
            speedups=np.array([]),
            efficiency_intervals=(),
            drawn_speedups=None,
            speedup_ratio_interval=None,
            loss_factors=None,
            untestable_reason=reason,
        )

    @property
    def relative_worker_counts(self) -> Floats:
        """Numbers of workers / number of workers of the base, shape (counts,)."""
        return np.array(self.worker_counts) / self.base_worker_count

    @property
    def efficiencies(self) -> Floats:
        """Efficiency E' on each number of workers, shape (counts,)."""
        return np.asarray(self.speedups / self.relative_worker_counts)

    @property
    def worker_count_ratio(self) -> float:
        """Largest / smallest number of workers."""
        return self.worker_counts[-1] / self.worker_counts[0]

    @property
    def efficiency_ratio(self) -> float:
        """Efficiency on the most workers / efficiency on the fewest workers."""
        return float(self.efficiencies[-1] / self.efficiencies[0])

    def speedup_interval(self, index: int) -> Interval | None:
        """Return the 95 % interval of the speedup on one number of workers; None for the base."""
        interval, ratio = self.efficiency_intervals[index], float(self.relative_worker_counts[index])
        return (interval[0] * ratio, interval[1] * ratio) if interval else None

    @property
    def efficiency_ratio_interval(self) -> Interval | None:
        """95 % interval of the efficiency on the most workers / the efficiency on the fewest."""
        if self.speedup_ratio_interval is None:
            return None
        low, high = self.speedup_ratio_interval
        return low / self.worker_count_ratio, high / self.worker_count_ratio
