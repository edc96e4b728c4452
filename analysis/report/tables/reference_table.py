"""Table of samples to target, compared with the reference convergence points of the workload."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.convergence.compare import ReferenceComparison, ReferenceOutcome, choose_outcome
from analysis.report.wording import NO_VALUE, format_interval, format_number, join_names
from analysis.results.summary import RunSummary
from analysis.results.trial_group import TrialGroup
from analysis.statistics.holm import holm_adjust
from analysis.statistics.reference_range import ReferenceRange, compare_with_reference

OUTCOME_TEXTS = {
    ReferenceOutcome.WITHIN: "within the reference range",
    ReferenceOutcome.FEWER: "fewer samples than the reference",
    ReferenceOutcome.MORE: "more samples than the reference",
    ReferenceOutcome.TOO_CLOSE: "too close to call",
}


@dataclass(frozen=True)
class ReferenceRow:
    """One group of trials, compared with its reference: the texts of the cells."""

    name: str
    run_count: int
    batch: int
    samples: str
    reference: str  # mean of the reference, and the range for the mean of as many runs
    outcome: str


@dataclass(frozen=True)
class GroupComparison:
    """Comparison of the mean of a group of trials with its reference; p-values are Holm's over all groups."""

    group: TrialGroup
    reference: ReferenceComparison
    found: ReferenceRange | None  # None: not compared
    outcome: ReferenceOutcome
    reason: str = ""


def make_reference_table(summary: RunSummary) -> tuple[ReferenceRow, ...]:
    """Return one row per group of trials whose workload has reference convergence points."""
    return tuple(map(_make_row, compare_groups_with_reference(summary.trial_groups)))


def reference_warning(summary: RunSummary) -> str:
    """Return a sentence that names the groups that need significantly fewer samples than the reference; else empty."""
    suspicious = [
        each for each in compare_groups_with_reference(summary.trial_groups) if each.outcome == ReferenceOutcome.FEWER
    ]
    if not suspicious:
        return ""
    names = join_names(each.group.name for each in suspicious)
    need = "needs" if len(suspicious) == 1 else "need"
    return (
        f"{names} {need} significantly fewer samples than the reference convergence point of the workload (Holm): "
        "check for a bug"
    )


def compare_groups_with_reference(trial_groups: Sequence[TrialGroup]) -> list[GroupComparison]:
    """Compare every group of trials whose workload has a reference with that reference.

    A group outside of its range is too close to call if the difference is not significant after Holm's correction.
    """
    pairs = [(group, group.trials[0].reference) for group in trial_groups]
    unadjusted = [_compare_group(group, reference) for group, reference in pairs if reference is not None]
    compared = [each.found for each in unadjusted if each.found is not None]
    p_fewer, p_more = (
        iter(holm_adjust(np.array(p_values)))
        for p_values in ([found.fewer.p_value for found in compared], [found.p_more for found in compared])
    )
    return [
        each if each.found is None else replace(each, outcome=_adjust_outcome(each.found, next(p_fewer), next(p_more)))
        for each in unadjusted
    ]


def _adjust_outcome(found: ReferenceRange, p_fewer: float, p_more: float) -> ReferenceOutcome:
    """Return the outcome for one of several groups, given its adjusted p-values."""
    alone, adjusted = choose_outcome(found.fewer.p_value, found.p_more), choose_outcome(p_fewer, p_more)
    return adjusted if adjusted == alone else ReferenceOutcome.TOO_CLOSE


def _compare_group(group: TrialGroup, reference: ReferenceComparison) -> GroupComparison:
    statistics, samples = reference.statistics, group.samples_to_target_by_seed
    if statistics is None:
        return GroupComparison(group, reference, None, ReferenceOutcome.NOT_COMPARED, reference.reason)
    missed = int(np.isinf(samples).sum())
    if missed:
        reason = f"the target was missed in {missed} of {samples.size} runs"
        return GroupComparison(group, reference, None, ReferenceOutcome.NOT_COMPARED, reason)
    return GroupComparison(group, reference, compare_with_reference(samples, statistics), ReferenceOutcome.WITHIN)


def _make_row(comparison: GroupComparison) -> ReferenceRow:
    group, reference, found = comparison.group, comparison.reference, comparison.found
    samples, mean = NO_VALUE, NO_VALUE
    if found is not None and reference.mean is not None:
        samples = format_number(float(group.samples_to_target_by_seed.mean()))
        note = ", interpolated" if reference.is_interpolated else ""
        mean = f"{format_number(reference.mean)}{format_interval((found.low, found.high))}{note}"
    outcome = OUTCOME_TEXTS.get(comparison.outcome) or f"not compared: {comparison.reason}"
    return ReferenceRow(group.name, len(group.trials), reference.batch, samples, mean, outcome)
