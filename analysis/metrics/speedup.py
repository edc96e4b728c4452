"""How much faster on N workers, and where does the rest go?

    S(N) = T(base) / T(N)          speedup
    E'(N) = S / (N / N_base)       efficiency (Mattson et al., MLPerf Training Benchmark, 2020)
    E' = hardware x statistical
    statistical = samples-to-target(base) / samples-to-target(N)
    hardware = E' / statistical = gain in samples per second and worker

T is the time to target where base and every point reach it, else the seconds for the sample budget that all completed;
the curve says which. Workers are counted, servers are not; `efficiency_with_servers` counts both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from analysis.metrics.centre import Floats, interval, olympic_mean, resampled
from analysis.result import Group, Labels

Of = Literal["time_to_target", "time_to_samples"]


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


@dataclass(frozen=True)
class Curve:
    """One strategy over the number of workers."""

    strategy: str
    base: Base
    points: list[Point]
    labels: Labels
    condition: str
    of: Of
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
    def foretold(self) -> bool:
        """Whether closed forms tell how it grows with the number of workers."""
        return len(self.points) > 1 and all(point.predicted_speedup for point in self.points)


def curves(found: Sequence[Group]) -> tuple[Curve, ...]:
    """One curve per strategy and condition; none where something took no time, which gives no ratio."""
    keys = dict.fromkeys((group.strategy, group.condition) for group in found if not group.baseline)
    drawn = (_curve([g for g in found if (g.strategy, g.condition) == key], found) for key in keys)
    return tuple(curve for curve in drawn if curve)


def _curve(members: Sequence[Group], found: Sequence[Group]) -> Curve | None:
    members = sorted(members, key=lambda group: group.workers)
    base = _base(members, found)
    of: Of = "time_to_target" if all(group.reached for group in (base, *members)) else "time_to_samples"
    budget = min(trial.samples for group in (base, *members) for trial in group.trials)
    times = {group.workers: _times(group, of, budget) for group in members}
    base_times = _times(base, of, budget)
    if not all(each.all() for each in (base_times, *times.values())):
        return None
    draws = _draws(base_times, times, base if base in members else None)
    first = members[0]
    return Curve(
        strategy=first.strategy,
        base=Base(base.workers, float(olympic_mean(base_times)), base.strategy),
        points=[
            _point(group, base, times[group.workers], base_times, of, draws.get(group.workers)) for group in members
        ],
        labels={key: value for key, value in first.trials[0].labels.items() if key != "workers"},
        condition=first.condition,
        of=of,
        draws=draws,
    )


def _base(members: Sequence[Group], found: Sequence[Group]) -> Group:
    """The baseline trial of the same conditions, else the strategy's own smallest number of workers.

    A baseline has no value for a key of somebody else's strategy, such as its number of servers: it serves for all.
    """
    baselines = [group for group in found if group.baseline and _serves(group, members[0])]
    return baselines[0] if baselines else members[0]


def _serves(baseline: Group, member: Group) -> bool:
    labels = member.trials[0].labels
    given = ((key, value) for key, value in baseline.trials[0].labels.items() if key != "workers")
    return all(labels.get(key) == value for key, value in given)


def _times(group: Group, of: Of, budget: int) -> Floats:
    return group.times_to_target_s if of == "time_to_target" else budget * group.seconds_per_sample


def _draws(base_times: Floats, times: dict[int, Floats], own_base: Group | None) -> dict[int, Floats]:
    """Bootstrap of S over the repeats: numerator and denominator are resampled, each on its own.

    A strategy that is its own base has S = 1 there by definition. Empty where nothing was repeated.
    """
    if base_times.size == 1 and all(each.size == 1 for each in times.values()):
        return {}
    base_draws = resampled(base_times, seed=0)
    draws = {workers: base_draws / resampled(each, seed=workers) for workers, each in times.items()}
    return draws | ({own_base.workers: np.ones_like(base_draws)} if own_base else {})


def _point(group: Group, base: Group, times: Floats, base_times: Floats, of: Of, draws: Floats | None) -> Point:
    seconds = float(olympic_mean(times))
    speedup = float(olympic_mean(base_times)) / seconds
    efficiency = speedup / (group.workers / base.workers)
    statistical = base.samples_to_target / group.samples_to_target if of == "time_to_target" else None
    return Point(
        workers=group.workers,
        speedup=speedup,
        speedup_ci=None if draws is None else interval(draws),
        efficiency=efficiency,
        hardware_efficiency=efficiency / (statistical or 1),
        statistical_efficiency=statistical,
        seconds=seconds,
        runs=len(group.trials),
        efficiency_with_servers=speedup / ((group.workers + group.servers) / (base.workers + base.servers)),
        efficiency_by_speed=_by_speed(group, base, speedup),
        rate_speedup=float(olympic_mean(base.seconds_per_sample) / olympic_mean(group.seconds_per_sample)),
        predicted_speedup=_predicted(group, base),
    )


def _predicted(group: Group, base: Group) -> float | None:
    ours_s, theirs_s = (each.predicted_seconds_per_sample for each in (group, base))
    return theirs_s / ours_s if ours_s and theirs_s else None


def _by_speed(group: Group, base: Group, speedup: float) -> float | None:
    speed, base_speed = (each.trials[0].declared_samples_per_second for each in (group, base))
    return speedup * base_speed / speed if speed and base_speed else None
