"""Table of strategies of a report: time, speedup, efficiency and quality of every group of trials, with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.metrics.comparisons.quality_comparison import choose_quality_metric, format_mean_quality
from analysis.metrics.comparisons.strategy_comparison import (
    FasterAnswer,
    StrategyTimeGap,
    compare_group_pairs,
    find_group_time_gap,
)
from analysis.metrics.running_costs import JOULES_PER_WH
from analysis.metrics.speedup import SpeedupPoint
from analysis.report.wording import (
    EFFICIENCY_DIGITS,
    NO_VALUE,
    TIMES_SIGN,
    format_interval,
    format_number,
    format_percentage,
    format_percentage_interval,
    format_quantity,
)
from analysis.results.comparable_groups import choose_time_metric
from analysis.results.summary import RunSummary
from analysis.results.trial_group import TimeMetric, TrialGroup
from analysis.statistics.centre import olympic_mean
from analysis.statistics.intervals import confidence_interval, mean_interval
from services.scenario.target import MetricName

NOT_MEASURED = str(FasterAnswer.NOT_MEASURED)
SAMPLES_PER_TIME = 1000  # samples whose time is shown where times to the target are unknown


@dataclass(frozen=True)
class StrategyRow:
    """Row of the table of strategies: the texts of its cells."""

    group: TrialGroup
    time: str
    speedup: str
    efficiency: str
    factors: str  # hardware × statistical efficiency
    compute_utilisation: str
    goodput: str  # a dash where no failures are declared
    quality: str
    accelerator_hours: str
    energy: str  # modelled
    cost: str
    comparison_text: str  # whether the group is faster than the reference, and by which factor


@dataclass(frozen=True)
class StrategyTable:
    """Table of strategies, with the headings that depend on the run."""

    time_heading: str
    quality_heading: str
    rows: tuple[StrategyRow, ...]
    has_energy: bool  # whether any row has an energy
    has_costs: bool  # whether any row has an energy or a cost

    @property
    def has_goodput(self) -> bool:
        """Whether the scenario of any row declares failures, a failure policy, or checkpoints."""
        return any(row.goodput != NO_VALUE for row in self.rows)

    @property
    def has_speedups(self) -> bool:
        """Whether any row has a speedup; a run without several numbers of workers has none."""
        return any(row.speedup != NO_VALUE for row in self.rows)

    @property
    def has_factors(self) -> bool:
        """Whether the efficiency of any row is split into hardware and statistical efficiency."""
        return any(row.factors != NO_VALUE for row in self.rows)


def make_strategy_table(summary: RunSummary) -> StrategyTable:
    """Return the table of strategies of a run, one row per group of trials in the order of the scenario.

    The reference of a row is the first strategy of the scenario that ran with its swept values and workers. If a single
    strategy ran, it is the first combination of swept values on as many workers.
    """
    groups = summary.trial_groups
    time_metric = choose_time_metric(groups)
    metric = choose_quality_metric(groups)
    points = {
        (curve.strategy, curve.condition, point.workers): point
        for curve in summary.curves
        if curve.compares_groups
        for point in curve.points
    }
    references = {group.name: _find_reference(group, groups) for group in groups}
    # Groups with the same swept values and workers keep the p-values of the comparison of all strategies.
    pairs = [(reference, group) for group in groups if (reference := references[group.name]) and reference is not group]
    gaps = (*summary.strategy_time_gaps, *compare_group_pairs(pairs))
    rows = tuple(
        StrategyRow(
            group,
            _format_time(group, time_metric),
            *_format_efficiencies(points.get((group.strategy, group.condition, group.workers))),
            _format_mean_share([trial.compute_utilisation.share for trial in group.trials]),
            _format_goodput(group),
            _format_quality_and_interval(group, metric),
            *_format_running_costs(group),
            _format_comparison(group, references[group.name], gaps),
        )
        for group in groups
    )
    is_to_target = time_metric == "time_to_target"
    trials = [trial for group in groups for trial in group.trials]
    sample_name = "worker steps" if summary.samples_are_steps else "samples"
    has_energy = any(trial.energy_joules is not None for trial in trials)
    return StrategyTable(
        f"s to {summary.target}" if is_to_target else f"s per {SAMPLES_PER_TIME:,} {sample_name}",
        metric or "quality",
        rows,
        has_energy,
        has_costs=has_energy or any(trial.cost is not None for trial in trials),
    )


def _format_time(group: TrialGroup, time_metric: TimeMetric) -> str:
    """Return the olympic mean of the times with its interval, and how many runs missed the target.

    The text also states if the parameters of one worker decide whether the target is reached.
    """
    missed = sum(trial.time_to_target_s is None for trial in group.trials) if time_metric == "time_to_target" else 0
    factor = SAMPLES_PER_TIME if time_metric == "time_to_samples" else 1
    times_s = factor * group.trial_times_s(time_metric)
    missed_text = f" (missed in {missed} of {len(group.trials)})" if missed else ""
    if time_metric == "time_to_target" and group.trials[0].evaluated_model == "worker_0_then_mean":
        missed_text += " (model of worker-0)"
    if not times_s.all():
        return "0"
    interval = confidence_interval(times_s, group.time_rounding_s(time_metric))
    return f"{format_number(factor * group.mean_time_s(time_metric))}{format_interval(interval)}{missed_text}"


def _format_efficiencies(point: SpeedupPoint | None) -> tuple[str, str, str]:
    """Return speedup, efficiency, and the factors of the efficiency as texts."""
    if point is None:
        return (NO_VALUE, NO_VALUE, NO_VALUE)
    factors = NOT_MEASURED
    if point.statistical_efficiency is not None:
        hardware, statistical = map(format_percentage, (point.hardware_efficiency, point.statistical_efficiency))
        factors = f"{hardware} {TIMES_SIGN} {statistical}"
    interval = format_percentage_interval(point.efficiency_ci, EFFICIENCY_DIGITS)
    efficiency = f"{format_percentage(point.efficiency, EFFICIENCY_DIGITS)}{interval}"
    return (f"{format_number(point.speedup)}{format_interval(point.speedup_ci)}", efficiency, factors)


def _format_goodput(group: TrialGroup) -> str:
    """Return the mean goodput of the repeats with its interval; a dash if the scenario declares no failures.

    Without any failure in the repeats, there is no interval: equal repeats say nothing about failures.
    """
    if not group.declares_failures:
        return NO_VALUE
    shares = [trial.goodput.share for trial in group.trials]
    return _format_mean_share(shares, has_interval=group.failure_count > 0)


def _format_mean_share(shares: Sequence[float | None], *, has_interval: bool = True) -> str:
    """Return the mean share of the repeats, with its interval if asked for."""
    known = [share for share in shares if share is not None]
    if len(known) < len(shares):
        return NOT_MEASURED
    interval = np.clip((mean_interval(np.array(known)) if has_interval else None) or (), 0.0, 1.0)
    mean, *limits = (format_quantity(float(value), "%") for value in (np.mean(known), *interval))
    return f"{mean} [{', '.join(limits)}]" if limits else mean


def _format_quality_and_interval(group: TrialGroup, metric: MetricName | None) -> str:
    if metric is None:
        return NOT_MEASURED
    interval = mean_interval(np.array([trial.final[metric] for trial in group.trials]))
    return f"{format_mean_quality(group, metric)}{format_interval(interval)}"


def _format_running_costs(group: TrialGroup) -> tuple[str, str, str]:
    """Return accelerator-hours, energy and cost of a group's trials as texts: olympic means over the repeats.

    Where a value is not known, the text is the reason.
    """
    first = group.trials[0]
    hours, joules, cost = (
        _olympic_mean_or_none([getattr(trial, name) for trial in group.trials])
        for name in ("accelerator_hours", "energy_joules", "cost")
    )
    energy = first.energy_reason if joules is None else format_quantity(joules / JOULES_PER_WH, "Wh")
    return (
        format_number(hours),
        energy or NO_VALUE,
        (first.cost_reason if cost is None else f"{format_number(cost)} {first.currency}") or NO_VALUE,
    )


def _olympic_mean_or_none(values: Sequence[float | None]) -> float | None:
    """Return the olympic mean of values; None if one of them is not known."""
    known = [value for value in values if value is not None]
    return float(olympic_mean(np.array(known))) if known and len(known) == len(values) else None


def _find_reference(group: TrialGroup, trial_groups: Sequence[TrialGroup]) -> TrialGroup | None:
    """Return the first group with the same workers and swept values, or with the same workers if one strategy ran.

    None for a baseline, or without another such group.
    """
    candidates = [other for other in trial_groups if other.workers == group.workers and not other.is_baseline]
    if len({other.strategy for other in trial_groups if not other.is_baseline}) > 1:
        candidates = [other for other in candidates if other.condition == group.condition]
    return candidates[0] if len(candidates) > 1 and not group.is_baseline else None


def _format_comparison(group: TrialGroup, reference: TrialGroup | None, gaps: Sequence[StrategyTimeGap]) -> str:
    """Return whether a group is faster than its reference, with the interval of the ratio of their times.

    The ratio is time of the reference / time of the group: above 1 means faster.
    """
    if reference is None:
        return NO_VALUE
    if group is reference:
        return "reference"
    gap = find_group_time_gap(group, reference, gaps)
    if gap is None:
        return NOT_MEASURED
    ratio, interval = gap.comparison.ratio, gap.comparison.interval
    if gap.faster.name != group.name:
        ratio, interval = 1 / ratio, (1 / interval[1], 1 / interval[0]) if interval else None
    factor = f": {format_number(ratio)}{TIMES_SIGN}{format_interval(interval)}" if 0 < ratio < np.inf else ""
    compared_with = reference.condition if reference.strategy == group.strategy else reference.strategy
    return f"{gap.answer_is_faster(group)}{factor} vs {compared_with}"
