"""Checks of the claims with the speedup curves of a run."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from analysis.checks.verdict import VerdictLevel
from analysis.claims.outcomes import CheckedClaim, Claim, ClaimOutcome, Estimates, check_claims
from analysis.claims.scaling import LossFactors, MeasuredScaling
from analysis.claims.sentences import describe_claim
from analysis.metrics.speedup import SpeedupCurve
from analysis.report.wording import format_count
from analysis.results.comparable_groups import have_same_seeds
from analysis.results.trial_group import TrialGroup
from analysis.statistics.intervals import Interval, draw_mean_times, ratio_interval

COMMUNICATION_PHASES = ("exchange", "wait")  # phases of a step in which a worker sends, receives or waits for others
NO_CURVE_REASON = "no strategy has a speedup curve: no trial finished, or a trial took no time"


@dataclass(frozen=True)
class RunClaim:
    """Outcome of one claim for one speedup curve. The names of the fields are keys in summary.json."""

    study: str
    claim: Claim
    outcome: ClaimOutcome
    strategy: str  # empty if the run has no speedup curve
    condition: str  # swept keys and values except workers, as one phrase
    sentence: str
    reason: str = ""  # of an outcome that the numbers do not explain
    numbers: Estimates = field(default_factory=dict)


def check_claims_of_run(
    study: str,
    speedup_curves: Sequence[SpeedupCurve],
    trial_groups: Sequence[TrialGroup],
    *,
    is_simulated: bool,
    has_declared_links: bool,
) -> list[RunClaim]:
    """Return the outcome of every claim of a study for every speedup curve of a run.

    A curve with an invalid trial, without a target, with fewer than three numbers of workers, with a missed target or
    without repeats is not testable. In virtual time, undeclared compute and links take no time.

    Args:
        study: name of the study, as in the key `claims` of the scenario.
        speedup_curves: all speedup curves of the run.
        trial_groups: all groups of finished trials of the run.
        is_simulated: whether times are those of the engine `simulated`.
        has_declared_links: whether any node of the run has a declared link.
    """
    claims = []
    for curve in speedup_curves:
        groups = _groups_of_curve(curve, trial_groups)
        scaling = _measure_scaling(curve, groups)
        if is_simulated:
            scaling = _add_virtual_time_reasons(scaling, groups, has_declared_links=has_declared_links)
        claims += [_make_run_claim(study, each, scaling, curve) for each in check_claims(scaling)]
    return claims or _make_untestable_claims(study)


def _make_untestable_claims(study: str) -> list[RunClaim]:
    """Return the claims of a run without speedup curves."""
    untestable = MeasuredScaling.make_untestable("this run", NO_CURVE_REASON)
    return [_make_run_claim(study, each, untestable, None) for each in check_claims(untestable)]


def _make_run_claim(
    study: str, checked: CheckedClaim, scaling: MeasuredScaling, curve: SpeedupCurve | None
) -> RunClaim:
    return RunClaim(
        study,
        checked.claim,
        checked.outcome,
        curve.strategy if curve else "",
        curve.condition if curve else "",
        describe_claim(checked, scaling),
        checked.reason,
        checked.numbers,
    )


def _groups_of_curve(curve: SpeedupCurve, trial_groups: Sequence[TrialGroup]) -> list[TrialGroup]:
    """Return the groups of trials of a speedup curve, by number of workers."""
    own = [
        group
        for group in trial_groups
        if not group.is_baseline and (group.strategy, group.condition) == (curve.strategy, curve.condition)
    ]
    return sorted(own, key=lambda group: group.workers)


def _add_virtual_time_reasons(
    scaling: MeasuredScaling, groups: Sequence[TrialGroup], *, has_declared_links: bool
) -> MeasuredScaling:
    """Return the scaling with the reasons against a test in virtual time, where undeclared hardware takes no time."""
    has_unpaced_trial = any(trial.declared_samples_per_second is None for group in groups for trial in group.trials)
    no_compute = "no compute speed is declared, so compute takes no virtual time" if has_unpaced_trial else ""
    no_links = "" if has_declared_links else "no link is declared, so communication takes no virtual time"
    return replace(scaling, untestable_reason=scaling.untestable_reason or no_compute, unknown_loss_reason=no_links)


def _measure_scaling(curve: SpeedupCurve, groups: Sequence[TrialGroup]) -> MeasuredScaling:
    """Return the times of a speedup curve as input of the checks."""
    counts = [point.workers for point in curve.points]
    draws = np.array([curve.draws[count] for count in counts]).T if curve.draws else None
    is_to_target = curve.of == "time_to_target"
    return MeasuredScaling(
        name=curve.description,
        worker_counts=tuple(counts),
        base_worker_count=curve.base.workers,
        times=tuple(point.seconds for point in curve.points),
        time_intervals=tuple(point.seconds_ci for point in curve.points),
        speedups=np.array([point.speedup for point in curve.points]),
        efficiency_intervals=tuple(point.efficiency_ci for point in curve.points),
        drawn_speedups=draws,
        speedup_ratio_interval=_speedup_ratio_interval(curve, groups[0], groups[-1]),
        loss_factors=_resample_loss_factors(groups[0], groups[-1]) if is_to_target and draws is not None else None,
        communication_shares=_communication_shares(groups[0], groups[-1]),
        untestable_reason=_untestable_reason(groups),
    )


def _speedup_ratio_interval(curve: SpeedupCurve, smallest: TrialGroup, largest: TrialGroup) -> Interval | None:
    """Return the 95 % interval of the speedup of the largest group relative to the smallest; None without repeats."""
    times_s = [group.trial_times_s(curve.of) for group in (smallest, largest)]
    roundings_s = (smallest.time_rounding_s(curve.of), largest.time_rounding_s(curve.of))
    return ratio_interval(times_s[0], times_s[1], paired=curve.paired, rounding_steps=roundings_s)


def _untestable_reason(groups: Sequence[TrialGroup]) -> str:
    """Return why no claim can be tested with these groups of trials; empty if the claims can be tested."""
    trials = [trial for group in groups for trial in group.trials]
    of_all = f"of {format_count(len(trials), 'trial')}"
    if invalid_count := sum(trial.verdict == VerdictLevel.INVALID for trial in trials):
        return f"the fidelity verdict of {invalid_count} {of_all} is invalid"
    if any(trial.target is None for trial in trials):
        return "no target, so times to the target are not known"
    if missed_count := sum(trial.time_to_target_s is None for trial in trials):
        return f"{missed_count} {of_all} missed the target"
    if any(len(group.trials) == 1 for group in groups):
        return "a number of workers ran once, so its time has no interval"
    return ""


def _resample_loss_factors(smallest: TrialGroup, largest: TrialGroup) -> LossFactors | None:
    """Draw the hardware and the statistical factor of the change of efficiency between two numbers of workers.

    Samples to target and samples per second of each repeat are drawn together, because both depend on the seed. Samples
    to target are rounded up to evaluations; samples per second are not. Return None where a mean is unknown.
    """
    samples = [group.samples_to_target_by_seed for group in (smallest, largest)]
    rates = [group.samples_to_target_by_seed / group.trial_times_s("time_to_target") for group in (smallest, largest)]
    roundings = [group.max_eval_gap_samples for group in (smallest, largest)]
    if have_same_seeds((smallest, largest)):
        drawn = draw_mean_times([*samples, *rates], paired=True, rounding_steps=[*roundings, 0.0, 0.0])
    else:
        by_group = [
            draw_mean_times([samples[k], rates[k]], paired=True, rounding_steps=[roundings[k], 0.0], seed=k)
            for k in range(2)
        ]
        first, last = by_group
        drawn = None if first is None or last is None else np.stack([first, last], axis=2).reshape(len(first), -1)
    if drawn is None:
        return None
    drawn_hardware = drawn[:, 3] / drawn[:, 2] / (largest.workers / smallest.workers)
    statistical = smallest.mean_samples_to_target / largest.mean_samples_to_target
    return LossFactors(statistical, drawn_hardware, drawn[:, 0] / drawn[:, 1])


def _communication_shares(smallest: TrialGroup, largest: TrialGroup) -> tuple[float, float] | None:
    """Return the shares of exchange and waiting in a step, on the fewest and on the most workers; None if unlogged."""
    phases = [group.mean_s_by_step_phase for group in (smallest, largest)]
    if not all(sum(each.values()) for each in phases):
        return None
    first, last = (sum(each.get(name, 0.0) for name in COMMUNICATION_PHASES) / sum(each.values()) for each in phases)
    return first, last
