"""Measurement of all metrics of one trial, and of its status."""

from collections.abc import Iterable
from dataclasses import asdict

from analysis.checks.verdict import CheckVerdict, VerdictLevel, worst_verdict_level
from analysis.convergence.compare import compare_trial_with_reference
from analysis.convergence.reference_points import shipped_references
from analysis.metrics.batch_shares import measure_batch_balance
from analysis.metrics.bytes_sent import bytes_sent, expected_bytes_sent, nodes_with_uncounted_bytes
from analysis.metrics.checkpoints import mean_checkpoint_s, mean_checkpoint_s_per_step
from analysis.metrics.collectives import count_extra_collectives, measure_collectives
from analysis.metrics.event_outcomes import find_event_times
from analysis.metrics.goodput import list_node_losses, measure_goodput
from analysis.metrics.learning.consensus import measure_consensus
from analysis.metrics.learning.progress import final_eval_metrics, samples_per_second, steps_done, trained_sample_count
from analysis.metrics.learning.staleness import staleness_statistics
from analysis.metrics.learning.target import (
    evaluated_model,
    evaluation_count,
    evaluation_interval_samples,
    evaluation_seconds,
    samples_to_target,
    time_to_target_s,
)
from analysis.metrics.learning.worker_samples import count_worker_samples
from analysis.metrics.running_costs import measure_running_costs
from analysis.metrics.startup import startup_s
from analysis.metrics.step_times.compute_utilisation import measure_compute_utilisation
from analysis.metrics.step_times.predicted_step import predicted_mean_step_s, predicted_typical_step_s
from analysis.metrics.step_times.step_seconds import (
    mean_hidden_communication_s,
    step_phase_seconds,
    step_time_statistic_name,
    step_time_statistics,
    typical_step_s,
)
from analysis.metrics.strategy_changes.strategy_choice import describe_strategy_choice
from analysis.metrics.strategy_changes.strategy_switch import measure_switch_times
from analysis.reading.fatal_losses import is_explained_by_declared_loss
from analysis.reading.run_table import TrialLogTables
from analysis.results.trial_result import ContinuedTrainingResult, TrialResult, TrialStatus


def measure_trial(trial: TrialLogTables, fidelity_verdicts: Iterable[CheckVerdict]) -> TrialResult:
    """Return all metrics of one trial, given the verdicts of its checks."""
    plan, fidelity_verdicts = trial.plan, tuple(fidelity_verdicts)
    status, reason = _determine_trial_status(trial)
    has_missed = status == "missed_target"  # also if a model reached the target and then diverged
    return TrialResult(
        id=plan.trial,
        strategy=plan.label,
        workers=plan.workers,
        servers=plan.servers,
        repeat=plan.repeat,
        seed=plan.seed,
        labels=plan.labels,
        status=status,
        verdict=worst_verdict_level(fidelity_verdicts),
        reasons=[verdict.reason for verdict in fidelity_verdicts if verdict.level != VerdictLevel.VALID],
        steps=steps_done(trial),
        samples=trained_sample_count(trial),
        seconds=trial.seconds,
        samples_per_second=samples_per_second(trial),
        time_to_target_s=None if has_missed else time_to_target_s(trial),
        samples_to_target=None if has_missed else samples_to_target(trial),
        final=final_eval_metrics(trial),
        step_seconds=step_time_statistics(trial),
        predicted_step_seconds=predicted_typical_step_s(trial),
        phase_seconds=step_phase_seconds(trial),
        bytes_sent=bytes_sent(trial),
        expected_bytes_sent=expected_bytes_sent(trial),
        uncounted_bytes_of=nodes_with_uncounted_bytes(trial),
        staleness=staleness_statistics(trial),
        params_sha256=trial.params_sha256,
        baseline=plan.baseline,
        condition=plan.condition,
        declared_samples_per_second=plan.declared_samples_per_second,
        target=str(plan.target) if plan.target else None,
        status_reason=reason,
        events=find_event_times(trial),
        typical_step_seconds=typical_step_s(trial),
        predicted_samples_per_second=plan.predicted_samples_per_second,
        switch=measure_switch_times(trial),
        evaluation_samples=evaluation_interval_samples(trial),
        predicted_mean_step_seconds=predicted_mean_step_s(trial),
        saturates_at=plan.saturation_workers,
        typical_of=step_time_statistic_name(plan),
        disturbed_attempts=list(trial.disturbed_attempts),
        worker_samples=count_worker_samples(trial),
        diverged=trial.has_diverged and not trial.is_unreadable,
        evaluations=evaluation_count(trial),
        evaluation_seconds=evaluation_seconds(trial),
        startup_s=startup_s(trial),
        reference=compare_trial_with_reference(
            plan, None if has_missed else samples_to_target(trial), shipped_references()
        ),
        collectives=measure_collectives(trial),
        extra_collectives=count_extra_collectives(trial),
        hidden_communication_seconds=mean_hidden_communication_s(trial),
        compute_utilisation=measure_compute_utilisation(trial),
        batch_balance=measure_batch_balance(trial),
        strategy_choice=describe_strategy_choice(trial),
        consensus=measure_consensus(trial),
        evaluated_model=evaluated_model(plan),
        gradient_bytes=plan.vector_bytes,
        slowest_link_bps=plan.slowest_link_bps,
        goodput=measure_goodput(trial),
        failure_policy=plan.recovery.on_failure if plan.declares_failures else None,
        failure_interval_s=plan.failure_interval_s,
        checkpoint_interval_steps=plan.recovery.checkpoint.steps if plan.recovery.checkpoint else None,
        checkpoint_interval_s=plan.recovery.checkpoint.interval if plan.recovery.checkpoint else None,
        node_losses=list_node_losses(trial),
        ended_by_declared_loss=is_explained_by_declared_loss(trial),
        connection_breaks=list(trial.connection_breaks),
        data_protection=plan.data_protection or None,
        message_problems=list(trial.message_problems),
        mean_checkpoint_seconds=mean_checkpoint_s(trial),
        mean_checkpoint_seconds_per_step=mean_checkpoint_s_per_step(trial),
        failed_checkpoints=list(trial.membership.failed_checkpoints),
        continued=ContinuedTrainingResult(**plan.continued.model_dump(mode="json")) if plan.continued else None,
        **asdict(measure_running_costs(trial)),
    )


def _determine_trial_status(trial: TrialLogTables) -> tuple[TrialStatus, str]:
    """Return the status of a trial, and the reason for this status.

    The trial succeeded, missed its target, failed or was aborted. The engine's status decides first, then the
    coordinator's final log event, then whether the target was reached. `run_stop` with status aborted is MLPerf's term
    for a run that ended without its target; that is not a failure.
    """
    engine_status, reason = trial.status.get("status"), str(trial.status.get("reason", ""))
    if engine_status != "success":
        return "failed" if engine_status == "failed" else "aborted", reason or "the engine recorded no end of the trial"
    if trial.is_unreadable:
        first_damage = next(damage for damage in trial.damage if not damage.is_divergence)
        return "failed" if trial.run_stop else "aborted", str(first_damage)
    if not trial.run_stop:
        return "aborted", "the coordinator logged no run_stop"
    return _status_of_unsuccessful_training(trial) or ("success", reason)


def _status_of_unsuccessful_training(trial: TrialLogTables) -> tuple[TrialStatus, str] | None:
    """Return status and reason of a training that was aborted, diverged or missed its target.

    Return None if training succeeded.
    """
    reason = str(trial.run_stop.get("reason", ""))
    if trial.has_diverged:
        divergence = next((str(damage) for damage in trial.damage if damage.is_divergence), reason)
        return "failed" if trial.plan.target is None else "missed_target", divergence
    if trial.plan.target is None and trial.run_stop.get("status") == "aborted":
        return "aborted", reason
    if trial.plan.target is not None and time_to_target_s(trial) is None:
        return "missed_target", reason
    return None
