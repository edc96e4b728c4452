"""Check that the host did not make training steps longer than predicted.

The prediction is the time that the declared links and workers need.
"""

from analysis.checks.engine_kind import ran_in_virtual_time
from analysis.checks.verdict import CheckVerdict, VerdictLevel, degraded_verdict, valid_verdict
from analysis.reading.run_table import TrialLogTables
from analysis.reading.training_phases import TrainingPhase, training_phases


def check_host_added_time(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `degraded` if the host made training steps longer than predicted.

    The median step time is compared with the prediction.

    The excess over the prediction is compared with a threshold: it is what this host's cores need for messages.
    Dilation slows down the cluster but not the host, so a larger dilation reduces the share of this time. Shorter steps
    are valid, because some predictions are upper bounds. Steps without a prediction are valid.
    """
    if reason := _why_no_step_time_prediction(trial):
        return valid_verdict(f"the step time is not compared with the prediction: {reason}")
    synchronous = [phase for phase in training_phases(trial) if phase.sync_or_async == "synchronous"]
    if not synchronous:
        return valid_verdict("the step time is not compared with the prediction: workers do not wait for each other")
    verdicts = (_check_added_step_time(trial, phase) for phase in synchronous)
    return max(verdicts, key=lambda verdict: list(VerdictLevel).index(verdict.level))


def _check_added_step_time(trial: TrialLogTables, train_phase: TrainingPhase) -> CheckVerdict:
    measured_s, predicted_s = float(train_phase.steps["step_s"].astype(float).median()), train_phase.predicted.step_s
    if reason := train_phase.predicted.inapplicable_reason:
        return valid_verdict(f"the step time is not compared with the prediction: {reason}")
    if train_phase.steps.empty or not predicted_s:
        return valid_verdict("no step time was predicted, or no step was logged")
    excess, limit = measured_s / predicted_s - 1, trial.plan.fidelity.host_share
    when = f" {train_phase.name} the switch" if train_phase.name else ""
    times = (
        f"the median step{when} took {measured_s * 1e3:.3g} ms; the declared links and devices need "
        f"{predicted_s * 1e3:.3g} ms"
    )
    if excess <= limit:
        return valid_verdict(f"{times} ({excess:+.0%})")
    return degraded_verdict(f"{times}: this host added {excess:.0%} (limit {limit:.0%}); raise the dilation")


def _why_no_step_time_prediction(trial: TrialLogTables) -> str:
    """Return the reason why the step time of a trial cannot be predicted.

    Return an empty text if it can.
    """
    plan = trial.plan
    workers = [node for node in plan.nodes if node.role == "worker"]
    reasons = {
        "virtual time does not depend on the host": ran_in_virtual_time(trial),
        "a worker is not paced": any(node.throughput is None for node in workers),
        "the speeds of workers vary": any(node.variation for node in workers),
        "events change links or devices": any(event.change.changes_times for event in plan.events),
        "packets are lost or have jitter": any(path.losses or path.jitters for path in plan.network.paths),
    }
    return next((reason for reason, applies in reasons.items() if applies), "")
