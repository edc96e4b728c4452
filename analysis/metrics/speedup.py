"""How much faster on N workers, and where does the rest go? S, E' and its factors: `analysis.statistics.efficiency`.

T is the time to target where base and every point reach it, else the seconds for the sample budget that all completed;
the curve says which. Workers are counted, servers are not; `efficiency_with_servers` counts both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from analysis.report.wording import workers
from analysis.results.result import (
    SweepLabels,
    TimeMetric,
    TrialGroup,
    choose_time_metric,
    find_baseline,
    have_same_seeds,
)
from analysis.statistics.bootstrap import centre_interval, joint, ratio_interval
from analysis.statistics.centre import Floats, median, olympic_mean
from analysis.statistics.efficiency import factors, speedup

ONE = "one worker alone"


@dataclass(frozen=True)
class Base:
    """What a curve is compared with, and its absolute time."""

    workers: int
    seconds: float
    strategy: str  # addition to the contract, like all that follows the named fields of DESIGN section 6


@dataclass(frozen=True)
class Point:
    """One number of workers on a curve."""

    workers: int
    speedup: float
    speedup_ci: tuple[float, float] | None  # None where nothing was repeated
    efficiency: float
    hardware_efficiency: float
    statistical_efficiency: float | None  # None where the target plays no part
    seconds: float
    runs: int
    efficiency_with_servers: float
    efficiency_by_speed: float | None  # S / (declared speed / declared speed of the base): for unequal nodes
    rate_speedup: float  # samples per second / those of the base: what the time for the same samples gives
    predicted_speedup: float | None  # the same by the closed forms; None where one of both is missing
    seconds_ci: tuple[float, float] | None  # of the olympic mean; None where nothing was repeated
    seconds_median: float

    def rate_efficiency(self, base: Base) -> float:
        """The gain in samples per second and worker, as measured: beside hardware efficiency, which is a remainder."""
        return self.rate_speedup / (self.workers / base.workers)


@dataclass(frozen=True)
class Curve:
    """One strategy over the number of workers."""

    strategy: str
    base: Base
    points: list[Point]
    labels: SweepLabels
    condition: str
    of: TimeMetric
    paired: bool = False  # by seed, in the intervals: base and all points ran the same ones
    draws: dict[int, Floats] = field(repr=False, compare=False, default_factory=dict)  # bootstrap of S, by workers

    @property
    def name(self) -> str:
        """The strategy, marked where its time is not the time to target."""
        return self.strategy if self.of == "time_to_target" else f"{self.strategy}, by samples"

    @property
    def called(self) -> str:
        """The strategy and its condition, which another curve of the same strategy does not share."""
        return f"{self.strategy} ({self.condition})" if self.condition else self.strategy

    @property
    def base_called(self) -> str:
        """What it is compared with."""
        if self.base.strategy != self.strategy and self.base.workers == 1:
            return ONE
        return f"{self.base.strategy} on {workers(self.base.workers)}"

    @property
    def foretold(self) -> bool:
        """Whether closed forms tell how it grows with the number of workers."""
        return len(self.points) > 1 and all(point.predicted_speedup for point in self.points)


def curves(found: Sequence[TrialGroup]) -> tuple[Curve, ...]:
    """One curve per strategy and condition; none where something took no time, which gives no ratio."""
    keys = dict.fromkeys((group.strategy, group.condition) for group in found if not group.is_baseline)
    drawn = (_curve([g for g in found if (g.strategy, g.condition) == key], found) for key in keys)
    return tuple(curve for curve in drawn if curve)


def _curve(members: Sequence[TrialGroup], found: Sequence[TrialGroup]) -> Curve | None:
    members = sorted(members, key=lambda group: group.workers)
    base = find_baseline(members[0], found) or members[0]
    of = choose_time_metric((base, *members), require_all=True)
    budget = min(trial.samples for group in (base, *members) for trial in group.trials)
    paired = have_same_seeds((base, *members))
    times = {group.workers: _times(group, of, budget) for group in members}
    base_times = _times(base, of, budget)
    if not all(each.all() for each in (base_times, *times.values())):
        return None
    draws = _draws(base_times, times, base if base in members else None, paired=paired)
    first = members[0]
    return Curve(
        strategy=first.strategy,
        base=Base(base.workers, float(olympic_mean(base_times)), base.strategy),
        points=[_point(group, base, times[group.workers], base_times, of, paired=paired) for group in members],
        labels={key: value for key, value in first.trials[0].labels.items() if key != "workers"},
        condition=first.condition,
        of=of,
        paired=paired,
        draws=draws,
    )


def _times(group: TrialGroup, of: TimeMetric, budget: int) -> Floats:
    """Seconds to the target, or for the budget."""
    return group.times_s(of) * (budget if of == "time_to_samples" else 1)


def _draws(
    base_times: Floats, times: dict[int, Floats], own_base: TrialGroup | None, *, paired: bool
) -> dict[int, Floats]:
    """Bootstrap of S over the repeats: numerator and denominator are both resampled, paired by seed or each on its own.

    A strategy that is its own base has S = 1 there by definition. Empty where nothing was repeated.
    """
    if base_times.size == 1 and all(each.size == 1 for each in times.values()):
        return {}
    drawn = joint([base_times, *times.values()], paired=paired)
    with np.errstate(invalid="ignore"):  # both sides missed: the ratio is unknown, and takes the highest rank
        ratios = np.nan_to_num(drawn[:, :1] / drawn, nan=np.inf, posinf=np.inf)
    draws = {workers: ratios[:, place] for place, workers in enumerate(times, start=1)}
    return draws | ({own_base.workers: np.ones(len(drawn))} if own_base else {})


def _point(
    group: TrialGroup, base: TrialGroup, times: Floats, base_times: Floats, of: TimeMetric, *, paired: bool
) -> Point:
    seconds = float(olympic_mean(times))
    statistical = base.samples_to_target / group.samples_to_target if of == "time_to_target" else None
    found = factors(group.workers / base.workers, speedup(float(olympic_mean(base_times)), seconds), statistical)
    return Point(
        workers=group.workers,
        speedup=found.speedup,
        speedup_ci=ratio_interval(base_times, times, paired=paired or group is base),
        efficiency=found.efficiency,
        hardware_efficiency=found.hardware,
        statistical_efficiency=found.statistical,
        seconds=seconds,
        runs=len(group.trials),
        efficiency_with_servers=found.speedup / ((group.workers + group.servers) / (base.workers + base.servers)),
        efficiency_by_speed=_by_speed(group, base, found.speedup),
        rate_speedup=speedup(base.mean_time_s("time_to_samples"), group.mean_time_s("time_to_samples")),
        predicted_speedup=_predicted(group, base),
        seconds_ci=centre_interval(times),
        seconds_median=median(times),
    )


def _predicted(group: TrialGroup, base: TrialGroup) -> float | None:
    ours_s, theirs_s = (each.predicted_seconds_per_sample for each in (group, base))
    return theirs_s / ours_s if ours_s and theirs_s else None


def _by_speed(group: TrialGroup, base: TrialGroup, speedup: float) -> float | None:
    speed, base_speed = (each.trials[0].declared_samples_per_second for each in (group, base))
    return speedup * base_speed / speed if speed and base_speed else None
