"""Speedup curves: speedup and efficiency of each strategy over the number of workers.

See `statistics.efficiency` for the efficiency.

S is the speedup, E' the efficiency. T is the time to target where base and all points reach it, else the seconds for
the samples that all of them completed; `SpeedupCurve.of` records which. N counts workers without servers;
`efficiency_with_servers` counts both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from analysis.report.wording import format_worker_count
from analysis.results.comparable_groups import choose_time_metric, find_baseline, have_same_seeds
from analysis.results.trial_group import TimeMetric, TrialGroup
from analysis.results.trial_result import SweepLabels
from analysis.statistics.centre import Floats, median_of_maybe_infinite, olympic_mean
from analysis.statistics.efficiency import compute_efficiency, speedup
from analysis.statistics.intervals import confidence_interval, draw_mean_times, percentile_interval, ratio_interval

ONE_WORKER = "one worker alone"


@dataclass(frozen=True)
class SpeedupBaseline:
    """Base of a speedup curve: the strategy and number of workers that all speedups are relative to."""

    workers: int
    seconds: float
    strategy: str


@dataclass(frozen=True)
class SpeedupPoint:
    """Point of a speedup curve: speedup and efficiency on one number of workers."""

    workers: int
    speedup: float
    speedup_ci: tuple[float, float] | None  # None for the base, and where a trial ran once or missed the target
    efficiency: float
    hardware_efficiency: float | None  # both None where times are not times to the target: not measured
    statistical_efficiency: float | None
    seconds: float
    runs: int
    efficiency_with_servers: float
    efficiency_by_speed: float | None  # S / (declared samples per second / those of the base): for unequal nodes
    rate_speedup: float  # samples per second / those of the base
    predicted_speedup: float | None  # `rate_speedup` by the closed forms; None where one of the two is not predicted
    seconds_ci: tuple[float, float] | None  # None where a trial ran once or missed the target
    seconds_median: float

    @property
    def efficiency_ci(self) -> tuple[float, float] | None:
        """95 % interval of the efficiency: that of the speedup / (workers / workers of the base)."""
        if self.speedup_ci is None:
            return None
        efficiency_per_speedup = self.efficiency / self.speedup
        return self.speedup_ci[0] * efficiency_per_speedup, self.speedup_ci[1] * efficiency_per_speedup

    def throughput_efficiency(self, curve_base: SpeedupBaseline) -> float:
        """Return the samples per second and worker, divided by those of the curve's baseline."""
        return self.rate_speedup / (self.workers / curve_base.workers)


@dataclass(frozen=True)
class SpeedupCurve:
    """Speedup of one strategy over the number of workers, with all other swept values fixed."""

    strategy: str
    base: SpeedupBaseline
    points: list[SpeedupPoint]
    labels: SweepLabels
    condition: str
    of: TimeMetric
    paired: bool = False  # whether intervals pair runs by seed: base and all points ran the same seeds
    draws: dict[int, Floats] = field(repr=False, compare=False, default_factory=dict)  # random draws of S, by workers

    @property
    def display_name(self) -> str:
        """Name of the strategy that the curve shows.

        The name ends in "by samples" if the curve compares times per sample instead of times to the target.
        """
        return self.strategy if self.of == "time_to_target" else f"{self.strategy}, by samples"

    @property
    def description(self) -> str:
        """Name of the strategy, with the swept values of the curve in parentheses if there are any."""
        return f"{self.strategy} ({self.condition})" if self.condition else self.strategy

    @property
    def base_description(self) -> str:
        """Description of the run that speedups are relative to, such as "ring on 2 workers"."""
        if self.base.strategy != self.strategy and self.base.workers == 1:
            return ONE_WORKER
        return f"{self.base.strategy} on {format_worker_count(self.base.workers)}"

    @property
    def compares_groups(self) -> bool:
        """Whether the curve compares groups of trials: it has several points, or a base that is not its only point."""
        base = (self.base.strategy, self.base.workers)
        return len(self.points) > 1 or base != (self.strategy, self.points[0].workers)

    def gain_interval(self, before: SpeedupPoint, after: SpeedupPoint) -> tuple[float, float] | None:
        """Return the 95 % interval of the ratio of the speedups of two points, after / before; None without repeats."""
        if not self.draws:
            return None
        return percentile_interval(self.draws[after.workers] / self.draws[before.workers])

    @property
    def has_predictions(self) -> bool:
        """Whether the strategy's closed form predicts the speedup of every point of the curve."""
        return len(self.points) > 1 and all(point.predicted_speedup for point in self.points)


def speedup_curves(trial_groups: Sequence[TrialGroup]) -> tuple[SpeedupCurve, ...]:
    """Return one speedup curve per strategy and combination of swept values other than the number of workers.

    A curve with a trial that took no time is left out, since it has no ratios.
    """
    keys = dict.fromkeys((group.strategy, group.condition) for group in trial_groups if not group.is_baseline)
    curves = (
        _make_speedup_curve([each for each in trial_groups if (each.strategy, each.condition) == key], trial_groups)
        for key in keys
    )
    return tuple(curve for curve in curves if curve)


def _make_speedup_curve(
    curve_groups: Sequence[TrialGroup], all_trial_groups: Sequence[TrialGroup]
) -> SpeedupCurve | None:
    """Return the speedup curve of one strategy's trial groups.

    `all_trial_groups` also contains its baseline.
    """
    curve_groups = sorted(curve_groups, key=lambda group: group.workers)
    base = find_baseline(curve_groups[0], all_trial_groups) or curve_groups[0]
    time_metric = choose_time_metric((base, *curve_groups), require_all=True)
    sample_budget = min(trial.samples for group in (base, *curve_groups) for trial in group.trials)
    paired = have_same_seeds((base, *curve_groups))
    times = {group.workers: _compute_repeat_times_s(group, time_metric, sample_budget) for group in curve_groups}
    base_times = _compute_repeat_times_s(base, time_metric, sample_budget)
    if not all(each.all() for each in (base_times, *times.values())):
        return None
    roundings = [group.time_rounding_s(time_metric) for group in (base, *curve_groups)]
    draws = _draw_speedups(base, curve_groups, [base_times, *times.values()], roundings)
    first = curve_groups[0]
    return SpeedupCurve(
        strategy=first.strategy,
        base=SpeedupBaseline(base.workers, float(olympic_mean(base_times)), base.strategy),
        points=[
            _make_speedup_point(group, base, times[group.workers], base_times, time_metric, paired=paired)
            for group in curve_groups
        ],
        labels={key: value for key, value in first.trials[0].labels.items() if key != "workers"},
        condition=first.condition,
        of=time_metric,
        paired=paired,
        draws=draws,
    )


def _compute_repeat_times_s(trial_group: TrialGroup, time_metric: TimeMetric, sample_count: int) -> Floats:
    """Return the seconds that each repeat of a training took, by seed.

    With `time_metric`, they are the seconds to the target or the seconds for `sample_count` samples.
    """
    return trial_group.trial_times_s(time_metric) * (sample_count if time_metric == "time_to_samples" else 1)


def _draw_speedups(
    base: TrialGroup, curve_groups: Sequence[TrialGroup], times_s: Sequence[Floats], roundings_s: Sequence[float]
) -> dict[int, Floats]:
    """Return random draws of the speedups, by number of workers; they show how uncertain the curve is.

    `times_s` and `roundings_s` are those of the base, followed by those of `curve_groups`. The result is empty where a
    trial ran once or missed the target. A strategy that is its own base has a speedup of 1 there by definition.
    """
    means = draw_mean_times(times_s, paired=have_same_seeds((base, *curve_groups)), rounding_steps=roundings_s)
    if means is None:
        return {}
    return {
        group.workers: np.ones(len(means)) if group is base else means[:, 0] / means[:, column]
        for column, group in enumerate(curve_groups, start=1)
    }


def _make_speedup_point(
    group: TrialGroup,
    base_group: TrialGroup,
    repeat_times_s: Floats,
    base_times_s: Floats,
    time_metric: TimeMetric,
    *,
    paired: bool,
) -> SpeedupPoint:
    seconds = float(olympic_mean(repeat_times_s))
    roundings_s = (base_group.time_rounding_s(time_metric), group.time_rounding_s(time_metric))
    interval = ratio_interval(base_times_s, repeat_times_s, paired=paired, rounding_steps=roundings_s)
    statistical = (
        base_group.mean_samples_to_target / group.mean_samples_to_target if time_metric == "time_to_target" else None
    )
    ratio = speedup(float(olympic_mean(base_times_s)), seconds)
    factors = compute_efficiency(group.workers / base_group.workers, ratio, statistical)
    return SpeedupPoint(
        workers=group.workers,
        speedup=factors.speedup,
        speedup_ci=None if group is base_group else interval,  # a base has the speedup 1 by definition
        efficiency=factors.efficiency,
        hardware_efficiency=factors.hardware,
        statistical_efficiency=factors.statistical,
        seconds=seconds,
        runs=len(group.trials),
        efficiency_with_servers=factors.speedup
        / ((group.workers + group.server_count) / (base_group.workers + base_group.server_count)),
        efficiency_by_speed=_divide_by_speed_ratio(group, base_group, factors.speedup),
        rate_speedup=speedup(base_group.mean_time_s("time_to_samples"), group.mean_time_s("time_to_samples")),
        predicted_speedup=_predicted_speedup(group, base_group),
        seconds_ci=confidence_interval(repeat_times_s, group.time_rounding_s(time_metric)),
        seconds_median=median_of_maybe_infinite(repeat_times_s),
    )


def _predicted_speedup(trial_group: TrialGroup, base_group: TrialGroup) -> float | None:
    """Return the speedup that closed forms (formulas) predict.

    The speedup is the ratio of samples per second to those of the base.

    Return None if one is not predicted.
    """
    seconds, base_seconds = (each.predicted_seconds_per_sample for each in (trial_group, base_group))
    return base_seconds / seconds if seconds and base_seconds else None


def _divide_by_speed_ratio(trial_group: TrialGroup, base_group: TrialGroup, speedup: float) -> float | None:
    """Return the speedup divided by a ratio of declared compute speeds.

    The ratio is the declared compute speed relative to that of the base.

    Return None if a compute speed is not declared.
    """
    speed, base_speed = (each.trials[0].declared_samples_per_second for each in (trial_group, base_group))
    return speedup * base_speed / speed if speed and base_speed else None
