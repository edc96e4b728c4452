"""Outcomes of the claims: confirmed, contradicted, too close to call, or not testable here.

An outcome follows from 95 % intervals, which are not corrected for the number of claims.

LESS_TIME_LESS_EFFICIENCY compares the smallest with the largest number of workers: the time must fall and the
efficiency E' must fall. BALANCE_POINT applies the rule "efficiency" (`statistics.worker_count_rules`) to the measured
numbers of workers: the interval of the balance point must lie between the base and the largest number, a number of
workers must be faster than the base with E' above the limit, and on the most workers E' must be below the limit.
HARDWARE_LOSS splits the loss of efficiency from the smallest to the largest number of workers:

share = ln(hardware factor) / ln(E' on the most workers / E' on the fewest)

The share must be above one half.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

import numpy as np

from analysis.claims.scaling import MeasuredScaling
from analysis.statistics.centre import Floats
from analysis.statistics.intervals import LEVEL_PERCENT, Interval, percentile_interval
from analysis.statistics.worker_count_rules import MIN_EFFICIENCY, find_last_efficient_index

MIN_SIZES = 3  # numbers of workers: a curve of two points has no balance point
EVEN_SHARE = 0.5  # share of hardware in a loss above which most of the loss is hardware
BEYOND_LARGEST_REASON = "the limit is not reached, so a balance point lies beyond the measured sizes"
NO_CHOICE = -1  # index where even the smallest number of workers is not efficient enough


@dataclass(frozen=True)
class Estimate:
    """A number, with its 95 % interval if it has one."""

    value: float
    interval: Interval | None = None


Estimates: TypeAlias = dict[str, Estimate]


class Claim(StrEnum):
    """Claim of the study. The values are keys in summary.json and must not change."""

    LESS_TIME_LESS_EFFICIENCY = "less_time_less_efficiency"
    BALANCE_POINT = "balance_point"
    HARDWARE_LOSS = "hardware_loss"


class ClaimOutcome(StrEnum):
    """What measured times say about a claim."""

    CONFIRMED = "confirmed"
    CONTRADICTED = "contradicted"
    TOO_CLOSE = "too close to call"
    NOT_TESTABLE = "not testable here"


@dataclass(frozen=True)
class CheckedClaim:
    """Outcome of one claim, with the numbers that it follows from, or the reason why it cannot be tested."""

    claim: Claim
    outcome: ClaimOutcome
    numbers: Estimates = field(default_factory=dict)
    reason: str = ""  # of an outcome that the numbers do not explain


def check_claims(scaling: MeasuredScaling) -> tuple[CheckedClaim, ...]:
    """Return the outcome of every claim for one curve of training times."""
    reason = scaling.untestable_reason or _missing_data_reason(scaling)
    if reason:
        return tuple(CheckedClaim(claim, ClaimOutcome.NOT_TESTABLE, reason=reason) for claim in Claim)
    return tuple(check(scaling) for check in CLAIM_CHECKS.values())


def _missing_data_reason(scaling: MeasuredScaling) -> str:
    """Return why times cannot be compared; empty if they can be."""
    if len(scaling.worker_counts) < MIN_SIZES:
        noun = f"number{'s' * (len(scaling.worker_counts) > 1)} of {scaling.worker_noun}s"
        return f"{len(scaling.worker_counts)} {noun}, at least {MIN_SIZES} are needed"
    return "" if scaling.drawn_speedups is not None else "times without intervals"


def check_time_efficiency_tradeoff(scaling: MeasuredScaling) -> CheckedClaim:
    """Check whether more workers shorten the training time and lower the efficiency per worker."""
    speedup_interval, efficiency_interval = scaling.speedup_ratio_interval, scaling.efficiency_ratio_interval
    numbers = _make_smallest_and_largest(scaling) | {
        "smallest_time": Estimate(scaling.times[0], scaling.time_intervals[0]),
        "largest_time": Estimate(scaling.times[-1], scaling.time_intervals[-1]),
        "smallest_efficiency": _efficiency_at(scaling, 0),
        "largest_efficiency": _efficiency_at(scaling, -1),
        "speedup_ratio": Estimate(scaling.efficiency_ratio * scaling.worker_count_ratio, speedup_interval),
        "efficiency_ratio": Estimate(scaling.efficiency_ratio, efficiency_interval),
    }
    is_faster, is_slower = _is_above(speedup_interval, 1), _is_below(speedup_interval, 1)
    is_less_efficient, is_more_efficient = _is_below(efficiency_interval, 1), _is_above(efficiency_interval, 1)
    outcome = _decide(confirmed=is_faster and is_less_efficient, contradicted=is_slower or is_more_efficient)
    return CheckedClaim(Claim.LESS_TIME_LESS_EFFICIENCY, outcome, numbers)


def check_balance_point(scaling: MeasuredScaling) -> CheckedClaim:
    """Check whether a number of workers shortens the training time at a high efficiency, and more workers do not.

    A balance point on the most workers is not testable, because the limit lies beyond the measured numbers.
    """
    last = len(scaling.worker_counts) - 1
    index, (low, high) = _efficient_index(scaling, scaling.speedups), _efficient_index_interval(scaling)
    numbers = {
        "base": Estimate(scaling.base_worker_count),
        "workers": Estimate(
            _worker_count_at(scaling, index), (_worker_count_at(scaling, low), _worker_count_at(scaling, high))
        ),
        "largest": Estimate(scaling.worker_counts[last]),
        "largest_efficiency": _efficiency_at(scaling, last),
    }
    if _worker_count_at(scaling, index) > scaling.base_worker_count:
        numbers["efficiency"] = _efficiency_at(scaling, index)
        numbers["speedup"] = Estimate(float(scaling.speedups[index]), scaling.speedup_interval(index))
    outcome = _judge_balance_point(scaling, low, high)
    reason = BEYOND_LARGEST_REASON if outcome is ClaimOutcome.NOT_TESTABLE else ""
    return CheckedClaim(Claim.BALANCE_POINT, outcome, numbers, reason)


def _judge_balance_point(scaling: MeasuredScaling, low: int, high: int) -> ClaimOutcome:
    """Return the outcome of the claim BALANCE_POINT.

    Both the interval of the balance point and the intervals of the efficiencies must decide the claim. `low` and `high`
    are the ends of the interval of the balance point, as indices of numbers of workers.
    """
    last, base_count = len(scaling.worker_counts) - 1, scaling.base_worker_count
    larger = [index for index, count in enumerate(scaling.worker_counts) if count > base_count]
    efficient = [index for index in larger if _is_above(scaling.efficiency_intervals[index], MIN_EFFICIENCY)]
    if low == last and last in efficient:
        return ClaimOutcome.NOT_TESTABLE
    is_inside = _worker_count_at(scaling, low) > base_count and high < last
    is_faster = any(_is_above(scaling.speedup_interval(index), 1) for index in efficient)
    return _decide(
        confirmed=is_inside and is_faster and _is_below(scaling.efficiency_intervals[last], MIN_EFFICIENCY),
        contradicted=_worker_count_at(scaling, high) <= base_count
        and all(_is_below(scaling.efficiency_intervals[index], MIN_EFFICIENCY) for index in larger),
    )


def check_hardware_loss(scaling: MeasuredScaling) -> CheckedClaim:
    """Check whether most of the lost efficiency is hardware efficiency, and not more samples to the target."""
    claim, factors = Claim.HARDWARE_LOSS, scaling.loss_factors
    if scaling.unknown_loss_reason or factors is None:
        reason = scaling.unknown_loss_reason or "samples to target are not known"
        return CheckedClaim(claim, ClaimOutcome.NOT_TESTABLE, reason=reason)
    efficiency_interval = scaling.efficiency_ratio_interval
    numbers = _make_smallest_and_largest(scaling) | {
        "efficiency_ratio": Estimate(scaling.efficiency_ratio, efficiency_interval),
        "hardware": Estimate(
            scaling.efficiency_ratio / factors.statistical, percentile_interval(factors.drawn_hardware)
        ),
        "statistical": Estimate(factors.statistical, percentile_interval(factors.drawn_statistical)),
    }
    if _is_above(efficiency_interval, 1):
        return CheckedClaim(claim, ClaimOutcome.NOT_TESTABLE, numbers, "the efficiency does not fall")
    if not _is_below(efficiency_interval, 1):
        return CheckedClaim(claim, ClaimOutcome.TOO_CLOSE, numbers, "the efficiency may not fall at all")
    log_hardware, log_statistical = np.log(factors.drawn_hardware), np.log(factors.drawn_statistical)
    interval = percentile_interval(log_hardware / (log_hardware + log_statistical))
    share = 1 - float(np.log(factors.statistical) / np.log(scaling.efficiency_ratio))
    numbers["hardware_share"] = Estimate(share, interval)
    if scaling.communication_shares:
        smallest_share, largest_share = map(Estimate, scaling.communication_shares)
        numbers |= {"smallest_communication_share": smallest_share, "largest_communication_share": largest_share}
    outcome = _decide(confirmed=_is_above(interval, EVEN_SHARE), contradicted=_is_below(interval, EVEN_SHARE))
    return CheckedClaim(claim, outcome, numbers)


CLAIM_CHECKS: dict[Claim, Callable[[MeasuredScaling], CheckedClaim]] = {
    Claim.LESS_TIME_LESS_EFFICIENCY: check_time_efficiency_tradeoff,
    Claim.BALANCE_POINT: check_balance_point,
    Claim.HARDWARE_LOSS: check_hardware_loss,
}


def _make_smallest_and_largest(scaling: MeasuredScaling) -> Estimates:
    return {"smallest": Estimate(scaling.worker_counts[0]), "largest": Estimate(scaling.worker_counts[-1])}


def _efficiency_at(scaling: MeasuredScaling, index: int) -> Estimate:
    return Estimate(float(scaling.efficiencies[index]), scaling.efficiency_intervals[index])


def _decide(*, confirmed: bool, contradicted: bool) -> ClaimOutcome:
    if confirmed:
        return ClaimOutcome.CONFIRMED
    return ClaimOutcome.CONTRADICTED if contradicted else ClaimOutcome.TOO_CLOSE


def _is_above(interval: Interval | None, limit: float) -> bool:
    return interval is not None and interval[0] > limit


def _is_below(interval: Interval | None, limit: float) -> bool:
    return interval is not None and interval[1] < limit


def _worker_count_at(scaling: MeasuredScaling, index: int) -> int:
    """Return the number of workers at an index; 0 for NO_CHOICE."""
    return 0 if index == NO_CHOICE else scaling.worker_counts[index]


def _efficient_index(scaling: MeasuredScaling, speedups: Floats) -> int:
    """Return the index of the last number of workers that is efficient enough; NO_CHOICE without one."""
    index = find_last_efficient_index(scaling.relative_worker_counts, speedups)
    return NO_CHOICE if index is None else index


def _efficient_index_interval(scaling: MeasuredScaling) -> tuple[int, int]:
    """Return the central 95 % of the indices that the rule chooses on random draws of the speedups."""
    draws = np.atleast_2d(scaling.speedups if scaling.drawn_speedups is None else scaling.drawn_speedups)
    indices = [_efficient_index(scaling, draw) for draw in draws]
    tail = (100 - LEVEL_PERCENT) / 2
    low, high = np.percentile(indices, [tail, 100 - tail], method="nearest").tolist()
    return int(low), int(high)
