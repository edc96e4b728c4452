"""Main findings on many numbers of workers: efficiency, its factors, longer steps, and the gain of more workers."""

from collections.abc import Collection, Sequence

import numpy as np

from analysis.metrics.speedup import ONE_WORKER, SpeedupCurve, SpeedupPoint
from analysis.report.fastest import MAX_LISTED, TIE_RATIO
from analysis.report.wording import (
    EFFICIENCY_DIGITS,
    TIMES_SIGN,
    format_interval,
    format_number,
    format_percentage,
    format_percentage_interval,
    format_worker_count,
    join_names,
)
from analysis.results.summary import RunSummary

MIN_CURVE_POINTS = 3  # least number of points of a curve whose growth is described
MIN_GROWTH_RATIO = 1.1  # ratio below which the growth of a step is not reported


def scaling_efficiency_finding(summary: RunSummary) -> str:
    """Return a sentence on the efficiency with each combination of swept values.

    The sentence also gives hardware and statistical efficiency, where they are measured. Applies to one strategy with
    several combinations, on three or more numbers of workers each.
    """
    curves = [curve for curve in summary.curves if len(curve.points) >= MIN_CURVE_POINTS]
    if len(summary.strategies) != 1 or len({curve.condition for curve in curves}) < 2:  # noqa: PLR2004 -- to compare
        return ""
    worker_counts = {curve.points[-1].workers for curve in curves}
    if len(worker_counts) == 1:
        where = f"on {format_worker_count(*worker_counts)}"
    else:
        where = "on the most workers that ran under each condition"
    parts = ", ".join(_describe_efficiency(curve, worker_counts) for curve in curves)
    unmeasured = _describe_unmeasured_factors(curves, summary.target)
    return f"{where}, the efficiency of {curves[0].strategy} is {parts}{unmeasured}"


def step_time_growth_finding(summary: RunSummary) -> str:
    """Return a sentence on how much longer a training step takes on the most workers than on the fewest.

    Applies to synchronous strategies on three or more numbers of workers with the same batch per worker, without a
    target and with one combination of swept values.
    """
    members = [group for group in summary.trial_groups if not group.is_baseline]
    trials = [trial for group in members for trial in group.trials]
    if summary.target or len({group.workers for group in members}) < MIN_CURVE_POINTS or len(summary.swept_values) > 1:
        return ""
    worker_batches = [trial.samples / (trial.steps * trial.workers) if trial.steps else np.nan for trial in trials]
    has_same_batch = max(worker_batches) <= TIE_RATIO * min(worker_batches)
    if any(trial.saturates_at for trial in trials) or not has_same_batch:
        return ""
    return describe_step_time_growth(summary, members[0].condition)


def gain_of_more_workers_finding(summary: RunSummary) -> str:
    """Return a sentence on how much faster each strategy gets between its two largest numbers of workers.

    Applies to at most MAX_LISTED speedup curves of three points or more, without a target.
    """
    curves = [curve for curve in summary.curves if len(curve.points) >= MIN_CURVE_POINTS]
    if summary.target or not curves or len(curves) > MAX_LISTED:
        return ""
    return "; ".join(_describe_worker_scaling(curve, _saturating_worker_count(curve, summary)) for curve in curves)


def efficiency_vs_one_worker_finding(summary: RunSummary) -> str:
    """Return a sentence on the efficiency of each strategy compared with one worker alone.

    Applies to a single number of workers beside one worker alone, without a target and with one combination of swept
    values.
    """
    curves = [curve for curve in summary.curves if curve.base_description == ONE_WORKER and len(curve.points) == 1]
    worker_counts = {curve.points[0].workers for curve in curves}
    if summary.target or len(worker_counts) != 1 or len(curves) < len(summary.curves) or len(summary.swept_values) > 1:
        return ""
    ranked = sorted(curves, key=lambda curve: -curve.points[0].efficiency)
    efficiencies = [
        (each.description, format_percentage(each.points[0].efficiency, EFFICIENCY_DIGITS)) for each in ranked
    ]
    where = f"on {format_worker_count(*worker_counts)}"
    if len(ranked) <= MAX_LISTED:
        parts = join_names(f"{name} keeps {efficiency}" for name, efficiency in efficiencies)
        return f"{where}, {parts} of the efficiency of {ONE_WORKER}"
    (highest_name, highest), *_, (lowest_name, lowest) = efficiencies
    range_text = f"between {lowest} ({lowest_name}) and {highest} ({highest_name})"
    return f"{where}, the efficiency is {range_text} of that of {ONE_WORKER}"


def describe_gain_of_more_workers(speedup_curve: SpeedupCurve) -> str:
    """Describe how much faster training gets from the second largest to the largest number of workers.

    If the speed falls, the text says on how many workers training is fastest. Where the interval of the ratio contains
    1, or single runs differ by less than TIE_RATIO, the change is too close to call. Empty for curves of fewer than
    three points.
    """
    if len(speedup_curve.points) < MIN_CURVE_POINTS:
        return ""
    before, last = speedup_curve.points[-2:]
    best = max(speedup_curve.points, key=lambda point: point.speedup)
    reference = best if best.workers < last.workers else before
    ratio, interval = last.speedup / reference.speedup, speedup_curve.gain_interval(reference, last)
    increase = f"{speedup_curve.description}: from {reference.workers} to {format_worker_count(last.workers)}"
    low, high = interval or (ratio / TIE_RATIO, ratio * TIE_RATIO)
    gain = f"{format_number(ratio)} times as fast{format_interval(interval)}"
    if low <= 1 <= high:
        return f"{increase}, the gain is too close to call: {gain}"
    if ratio > 1:
        return f"{increase}, training becomes {gain}"
    loss = f"{format_number(1 / ratio)} times as long{format_interval((1 / high, 1 / low) if interval else None)}"
    fastest = f"{speedup_curve.description} is fastest on {format_worker_count(best.workers)}"
    return f"{fastest}; training on {format_worker_count(last.workers)} takes {loss}"


def describe_step_time_growth(summary: RunSummary, swept_values: str) -> str:
    """Describe how much longer a step of each strategy takes on the most workers than on the fewest.

    Empty where no step takes longer by MIN_GROWTH_RATIO.
    """
    candidates = (group for group in summary.trial_groups if group.condition == swept_values and not group.is_baseline)
    groups = [group for group in candidates if group.median_step_s]
    if not groups:
        return ""
    fewest, most = min(group.workers for group in groups), max(group.workers for group in groups)
    steps_s = {(group.strategy, group.workers): group.median_step_s or 0.0 for group in groups}
    on_both = [name for name in summary.strategies if {(name, fewest), (name, most)} <= steps_s.keys()]
    ratios = {name: steps_s[name, most] / steps_s[name, fewest] for name in on_both}
    if fewest == most or max(ratios.values(), default=1.0) < MIN_GROWTH_RATIO:
        return ""
    first, *others = sorted(ratios, key=lambda name: -ratios[name])
    rest = "".join(f", of {name} {format_number(ratios[name])} times" for name in others)
    workers = f"from {fewest} to {format_worker_count(most)}"
    return f"{workers}, a step of {first} becomes {format_number(ratios[first])} times as long{rest}"


def describe_efficiency_factors(speedup_point: SpeedupPoint) -> str:
    """Return the two factors of an efficiency with a leading space, such as " (hardware 73% × statistical 23%)".

    Empty where they are not measured.
    """
    statistical, hardware = speedup_point.statistical_efficiency, speedup_point.hardware_efficiency
    if statistical is None:
        return ""
    return f" (hardware {format_percentage(hardware)} {TIMES_SIGN} statistical {format_percentage(statistical)})"


def _describe_efficiency(speedup_curve: SpeedupCurve, max_worker_counts: Collection[int]) -> str:
    """Return a part of a sentence on the efficiency of a strategy on the most workers, and on its two factors.

    The number of workers is named where it differs between speedup curves.
    """
    last = speedup_curve.points[-1]
    workers = f" ({format_worker_count(last.workers)})" if len(max_worker_counts) > 1 else ""
    interval = format_percentage_interval(last.efficiency_ci, EFFICIENCY_DIGITS)
    efficiency = f"{format_percentage(last.efficiency, EFFICIENCY_DIGITS)}{interval}"
    return f"{efficiency} with {speedup_curve.condition}{workers}{describe_efficiency_factors(last)}"


def _describe_unmeasured_factors(speedup_curves: Sequence[SpeedupCurve], quality_target: str | None) -> str:
    """Return why hardware and statistical efficiency are not measured. Empty where they are, for all curves."""
    by_samples = [curve.condition for curve in speedup_curves if curve.of == "time_to_samples"]
    if not by_samples:
        return ""
    unmeasured = "by time for the same samples: hardware and statistical efficiency are not measured"
    if not quality_target:
        return f"; {unmeasured} without a target"
    return f"; with {join_names(by_samples)} {unmeasured}, since not every number of workers reaches the target"


def _describe_worker_scaling(speedup_curve: SpeedupCurve, saturating_worker_count: float | None) -> str:
    """Describe what a strategy gains from more workers.

    The text also says how many workers saturate the links of the servers.
    """
    increase = describe_gain_of_more_workers(speedup_curve)
    if saturating_worker_count is None:
        return increase
    return f"{increase} (closed form: {format_number(saturating_worker_count)} workers saturate its servers' links)"


def _saturating_worker_count(speedup_curve: SpeedupCurve, summary: RunSummary) -> float | None:
    """Return how many workers are predicted to saturate a strategy's server links.

    Return None if the plan has no number.
    """
    most = speedup_curve.points[-1].workers
    trials = (trial for trial in summary.trials if trial.workers == most)
    key = (speedup_curve.strategy, speedup_curve.condition)
    return next((trial.saturates_at for trial in trials if (trial.strategy, trial.condition) == key), None)
