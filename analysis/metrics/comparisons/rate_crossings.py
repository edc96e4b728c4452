"""Link rate up to which a compressed strategy is faster than the same strategy without compression.

A strategy with fewer bytes is faster on slow links, and slower on links on which the exchange takes little time, for
example because it needs more samples to the target. The rate between the two is its crossing.

Measured: at each swept rate, the times of both strategies are compared over their shared seeds. p-values are adjusted
for all these comparisons of the run (Holm), because the rates with a difference are selected among all. The crossing
lies between two bracketing rates: at the lower one the compressed strategy is significantly faster, at the upper one
slower. Between them, the logarithm of the ratio is interpolated over the logarithm of the rate. Predicted: the time is
the samples to the target, times the seconds per sample of the closed form, which are interpolated over the reciprocal
of the rate, in which closed forms are linear.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import exp, isfinite, log
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from analysis.metrics.comparisons.strategy_comparison import (
    FasterAnswer,
    StrategyTimeGap,
    compare_group_pairs,
    find_group_time_gap,
)
from analysis.reading.plan_view import TrialPlan
from analysis.results.comparable_groups import choose_time_metric, restrict_to_shared_seeds
from analysis.results.trial_group import TimeMetric, TrialGroup
from analysis.statistics.intervals import Interval
from services.schema.units import Rate

COMPRESSION_KEYS = ("compress", "compress_replies")
Interpolation = Callable[[float], float]  # a monotone scale on which values are linear


class CrossingStatus(StrEnum):
    """Whether the rate of a crossing is known."""

    MEASURED = "measured"
    TOO_CLOSE = "too close to call"  # no significant difference on one side, or not at every rate
    NOT_BETWEEN_RATES = "not between the swept rates"  # significant at all rates, but not faster up to one of them
    NOT_MEASURED = "not measured"  # not every rate has two repeats that reach the target


@dataclass(frozen=True)
class RateCrossing:
    """Link rate up to which a compressed strategy is faster than the same strategy without compression.

    The names of the fields are keys of summary.json and must not change. Rates are in bits per second.
    """

    strategy: str
    uncompressed: str  # strategy that it is compared with
    workers: int
    key: str  # swept key of the rate
    condition: str  # other swept values, as one phrase
    time_metric: TimeMetric
    status: CrossingStatus
    reason: str  # why no rate is measured; empty if one is
    rate_bps: float | None  # measured; None unless the status is "measured"
    bracket_bps: Interval | None  # rates at which the strategy is significantly faster, and slower
    predicted_bps: float | None  # from closed forms and samples to the target; None: no crossing at the swept rates

    @property
    def predicted_to_measured(self) -> float | None:
        """Predicted rate divided by the measured rate; None unless both are known."""
        return self.predicted_bps / self.rate_bps if self.predicted_bps and self.rate_bps else None


class RatePoint(NamedTuple):
    """Times of the two strategies at one link rate."""

    rate_bps: float
    log_ratio: float  # mean of ln(uncompressed time / compressed time): above 0, compression is faster
    answer: FasterAnswer  # to whether the compressed strategy is faster, by adjusted p-value
    predicted_difference: float | None  # predicted seconds of the uncompressed less those of the compressed strategy

    @property
    def is_faster(self) -> bool:
        """Whether the compressed strategy is significantly faster."""
        return self.answer == FasterAnswer.YES and self.log_ratio > 0

    @property
    def is_slower(self) -> bool:
        """Whether the compressed strategy is significantly slower."""
        return self.answer == FasterAnswer.NO and self.log_ratio < 0


def pair_with_uncompressed(plans: Iterable[TrialPlan]) -> dict[str, str]:
    """Return the labels of compressed strategies, with the label of the same strategy without compression."""
    strategies = {plan.label: plan.strategy for plan in plans if not plan.baseline}
    uncompressed = [label for label, strategy in strategies.items() if not _is_compressed(strategy)]
    return {
        label: other
        for label, strategy in strategies.items()
        for other in uncompressed[::-1]  # the first one counts
        if _is_compressed(strategy) and _without_compression(strategies[other]) == _without_compression(strategy)
    }


def _is_compressed(strategy: Mapping[str, Any]) -> bool:
    kinds = (strategy.get(key, {}).get("kind", "identity") for key in COMPRESSION_KEYS)
    return any(kind != "identity" for kind in kinds)


def _without_compression(strategy: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in strategy.items() if key not in COMPRESSION_KEYS}


def find_rate_crossings(
    trial_groups: Sequence[TrialGroup], uncompressed_by_label: Mapping[str, str]
) -> list[RateCrossing]:
    """Return the crossing of each compressed strategy of a run that sweeps one link rate.

    Args:
        trial_groups: groups of finished trials.
        uncompressed_by_label: labels of the compressed strategies -> label of the same strategy without compression.
    """
    members = [group for group in trial_groups if not group.is_baseline]
    key = _find_rate_key(members)
    if key is None:
        return []
    crossings: list[tuple[str, list[tuple[TrialGroup, TrialGroup]]]] = []
    for label, uncompressed in uncompressed_by_label.items():
        of_strategy = [group for group in members if group.strategy == label]
        for workers, condition in dict.fromkeys((group.workers, _other_values(group, key)) for group in of_strategy):
            pairs = [
                (group, other)
                for group in of_strategy
                for other in members
                if (group.workers, _other_values(group, key)) == (workers, condition)
                and (other.strategy, other.workers, other.condition) == (uncompressed, workers, group.condition)
            ]
            if len(pairs) > 1:
                crossings.append((condition, pairs))
    gaps = compare_group_pairs(pair for _, pairs in crossings for pair in pairs)
    return [_measure_crossing(pairs, key, condition, gaps) for condition, pairs in crossings]


def _measure_crossing(
    pairs: Sequence[tuple[TrialGroup, TrialGroup]], key: str, condition: str, gaps: Sequence[StrategyTimeGap]
) -> RateCrossing:
    """Return the crossing of a strategy, given its group and the uncompressed group for each rate."""
    group, uncompressed = pairs[0]
    time_metric = choose_time_metric([each for pair in pairs for each in pair])
    samples = [_mean_samples([pair[side] for pair in pairs], time_metric) for side in (0, 1)]
    points = [_make_point(pair, _rate_of(pair[0], key), time_metric, samples, gaps) for pair in pairs]
    points.sort(key=attrgetter("rate_bps"))
    status, reason, bracket = _find_bracket(points)
    return RateCrossing(
        strategy=group.strategy,
        uncompressed=uncompressed.strategy,
        workers=group.workers,
        key=key,
        condition=condition,
        time_metric=time_metric,
        status=status,
        reason=reason,
        rate_bps=_interpolate_measured(points, bracket) if bracket else None,
        bracket_bps=bracket,
        predicted_bps=_find_predicted_crossing(points),
    )


def _make_point(
    pair: tuple[TrialGroup, TrialGroup],
    rate_bps: float,
    time_metric: TimeMetric,
    samples: Sequence[float],
    gaps: Sequence[StrategyTimeGap],
) -> RatePoint:
    """Return the comparison of a compressed with an uncompressed group at one rate."""
    difference = _predict_difference(pair, samples)
    gap = find_group_time_gap(*pair, gaps)
    if gap is None or gap.time_metric != time_metric or gap.comparison.interval is None:
        return RatePoint(rate_bps, 0.0, FasterAnswer.NOT_MEASURED, difference)
    compressed_s, uncompressed_s = (group.trial_times_s(time_metric) for group in restrict_to_shared_seeds(*pair))
    log_ratio = float(np.log(uncompressed_s / compressed_s).mean())
    return RatePoint(rate_bps, log_ratio, gap.answer_is_faster(pair[0]), difference)


def _predict_difference(pair: tuple[TrialGroup, TrialGroup], samples: Sequence[float]) -> float | None:
    """Return the predicted seconds of the uncompressed less those of the compressed group; None: not predicted."""
    compressed, uncompressed = (group.predicted_seconds_per_sample for group in pair)
    if compressed is None or uncompressed is None or not all(map(isfinite, samples)):
        return None
    return samples[1] * uncompressed - samples[0] * compressed


def _find_bracket(points: Sequence[RatePoint]) -> tuple[CrossingStatus, str, Interval | None]:
    """Return whether a crossing is measured, why not, and the bracketing rates, from the lowest to the highest rate."""
    if any(point.answer == FasterAnswer.NOT_MEASURED for point in points):
        return CrossingStatus.NOT_MEASURED, "not every rate has two repeats that reach the target with both", None
    faster, slower = ([p.rate_bps for p in points if p.is_faster], [p.rate_bps for p in points if p.is_slower])
    if faster and slower and max(faster) < min(slower):
        return CrossingStatus.MEASURED, "", (max(faster), min(slower))
    if len(faster) == len(points):
        return CrossingStatus.NOT_BETWEEN_RATES, "faster at every swept rate", None
    if len(slower) == len(points):
        return CrossingStatus.NOT_BETWEEN_RATES, "slower at every swept rate", None
    if faster and slower and max(slower) < min(faster):
        return CrossingStatus.NOT_BETWEEN_RATES, "slower on slow links, and faster on fast ones", None
    return CrossingStatus.TOO_CLOSE, "", None


def _interpolate_measured(points: Sequence[RatePoint], bracket: Interval) -> float:
    """Return the rate at which the interpolated ratio is 1.

    Where the mean ratio crosses 1 once between the bracketing rates, only the two rates beside are used.
    """
    inside = [point for point in points if bracket[0] <= point.rate_bps <= bracket[1]]
    crossed = [pair for pair in pairwise(inside) if pair[0].log_ratio > 0 >= pair[1].log_ratio]
    low, high = crossed[0] if len(crossed) == 1 else (inside[0], inside[-1])
    return _interpolate_zero((low.rate_bps, low.log_ratio), (high.rate_bps, high.log_ratio), log, exp)


def _find_predicted_crossing(points: Sequence[RatePoint]) -> float | None:
    """Return the rate at which both predicted times are equal; None if it is not between swept rates."""
    known = [(point.rate_bps, point.predicted_difference) for point in points if point.predicted_difference is not None]
    for (low, faster_by), (high, later) in pairwise(known):
        if faster_by > 0 >= later:
            return _interpolate_zero((low, faster_by), (high, later), _reciprocal, _reciprocal)
    return None


def _interpolate_zero(
    low: tuple[float, float], high: tuple[float, float], scale: Interpolation, inverse: Interpolation
) -> float:
    """Return the rate at which a value is 0 that is linear on a scale of rates, given rates and values beside."""
    share = low[1] / (low[1] - high[1])
    return inverse(scale(low[0]) + share * (scale(high[0]) - scale(low[0])))


def _reciprocal(rate_bps: float) -> float:
    return 1 / rate_bps


def _mean_samples(groups: Iterable[TrialGroup], time_metric: TimeMetric) -> float:
    """Return the geometric mean of the samples to the target over all rates; 1 for times per sample."""
    if time_metric == "time_to_samples":
        return 1.0
    with np.errstate(over="ignore"):
        return float(np.exp(np.mean([np.log(group.samples_to_target_by_seed).mean() for group in groups])))


def _find_rate_key(trial_groups: Iterable[TrialGroup]) -> str | None:
    """Return the swept key whose values are rates; None unless exactly one key has rates."""
    values: dict[str, set[str]] = {}
    for label, value in (item for group in trial_groups for item in group.trials[0].labels.items()):
        values.setdefault(label, set()).add(str(value))
    keys = [key for key, texts in values.items() if len(texts) > 1 and all(map(_is_rate, texts))]
    return keys[0] if len(keys) == 1 else None


def _is_rate(text: str) -> bool:
    try:
        Rate(text)
    except ValueError:
        return False
    return True


def _rate_of(group: TrialGroup, key: str) -> float:
    return float(Rate(str(group.trials[0].labels[key])))


def _other_values(group: TrialGroup, key: str) -> str:
    """Return the swept values except the rate and the number of workers, as one phrase."""
    labels = group.trials[0].labels
    return ", ".join(f"{name} {value}" for name, value in sorted(labels.items()) if name not in (key, "workers"))
