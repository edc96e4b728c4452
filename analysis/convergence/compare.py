"""Comparison of the samples to target of trials with the reference convergence points of their workload."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np

from analysis.convergence.matching import find_reference, other_rate_factor_reason
from analysis.convergence.reference_points import ReferencePoint, ReferenceWorkload, parse_workload
from analysis.reading.plan_view import TrialPlan
from analysis.statistics.convergence_check import SIGNIFICANCE_LEVEL
from analysis.statistics.reference_range import ReferenceStatistics, compare_with_reference


class ReferenceOutcome(StrEnum):
    """Outcome of the comparison: whether samples to the target lie within the range of the reference."""

    WITHIN = "within"
    FEWER = "fewer"  # suspicious: the problem may have been changed
    MORE = "more"
    TOO_CLOSE = "too close to call"  # outside of the range, but not significantly so for all systems of the run
    NOT_COMPARED = "not compared"


@dataclass(frozen=True)
class ReferenceComparison:
    """Samples to the target of a trial, compared with the reference convergence point of its workload and batch.

    The names of the fields are keys in summary.json. Numbers are None where the trial was not compared.
    """

    workload: str  # name of the shipped scenario with this workload; empty if there is none for these settings
    batch: int
    outcome: ReferenceOutcome
    reason: str = ""  # why the trial was not compared
    mean: float | None = None  # of the reference runs
    standard_deviation: float | None = None
    runs: int = 0  # reference runs
    is_interpolated: bool = False  # between the two batches of the reference that are next to this batch
    low: float | None = None  # range of a single run
    high: float | None = None

    @property
    def statistics(self) -> ReferenceStatistics | None:
        """Statistics of the reference; None if there are none for this batch."""
        if self.mean is None or self.standard_deviation is None:
            return None
        return ReferenceStatistics(self.mean, self.standard_deviation, self.runs)


def compare_trial_with_reference(
    plan: TrialPlan, samples_to_target: int | None, references: Sequence[ReferenceWorkload]
) -> ReferenceComparison | None:
    """Compare the samples to the target of one trial with the reference of its workload.

    None if the workload has no reference. The outcome holds for a single trial at 5 %: of twenty trials without any
    change to the problem, one needs fewer samples by chance.
    """
    workload = parse_workload(plan.workload_parts)
    if workload is None:
        return None
    reference, reason = find_reference(workload, references)
    if reference is None:
        return ReferenceComparison("", plan.batch, ReferenceOutcome.NOT_COMPARED, reason) if reason else None
    if reason := other_rate_factor_reason(reference, plan.batch, plan.batch_rate_factor):
        return ReferenceComparison(reference.name, plan.batch, ReferenceOutcome.NOT_COMPARED, reason)
    statistics, is_interpolated, reason = _find_statistics(reference, plan.batch)
    if statistics is None:
        return ReferenceComparison(reference.name, plan.batch, ReferenceOutcome.NOT_COMPARED, reason)
    outcome, low, high = ReferenceOutcome.NOT_COMPARED, None, None
    if samples_to_target is None:
        reason = "the trial missed its target"
    else:
        comparison = compare_with_reference(np.array([float(samples_to_target)]), statistics)
        outcome, low, high = (
            choose_outcome(comparison.fewer.p_value, comparison.p_more),
            comparison.low,
            comparison.high,
        )
    return ReferenceComparison(
        reference.name,
        plan.batch,
        outcome,
        reason,
        statistics.mean,
        statistics.standard_deviation,
        statistics.run_count,
        is_interpolated,
        low,
        high,
    )


def choose_outcome(p_fewer: float, p_more: float) -> ReferenceOutcome:
    """Return the outcome to which two one-sided p-values lead."""
    if p_fewer < SIGNIFICANCE_LEVEL:
        return ReferenceOutcome.FEWER
    return ReferenceOutcome.MORE if p_more < SIGNIFICANCE_LEVEL else ReferenceOutcome.WITHIN


def _find_statistics(reference: ReferenceWorkload, batch: int) -> tuple[ReferenceStatistics | None, bool, str]:
    """Return the statistics for a batch, whether they are interpolated, and the reason if there are none."""
    every = reference.workload.evaluate_every
    for point in reference.points:
        if point.batch == batch:
            return (
                (None, False, reason) if (reason := _unusable_reason(point)) else (_statistics(point, every), False, "")
            )
    for low, high in pairwise(reference.points):
        if low.batch < batch < high.batch:
            if reason := _unusable_reason(low) or _unusable_reason(high):
                return None, True, reason
            weight = (batch - low.batch) / (high.batch - low.batch)
            return _statistics(low, every).interpolate(_statistics(high, every), weight), True, ""
    batches = [point.batch for point in reference.points]
    return None, False, f"batch {batch} is outside of the batches of the reference, {min(batches)} to {max(batches)}"


def _statistics(point: ReferencePoint, evaluate_every: int) -> ReferenceStatistics:
    return ReferenceStatistics.of_runs(point.samples_to_target, float(evaluate_every))


def _unusable_reason(point: ReferencePoint) -> str:
    """Return why a point gives no statistics; empty if it does."""
    runs = len(point.samples_by_seed)
    if point.missed_runs:
        return f"{point.missed_runs} of {runs} reference runs with batch {point.batch} missed the target"
    return "" if runs > 1 else f"the reference has a single run with batch {point.batch}"
