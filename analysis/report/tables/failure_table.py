"""Table of a report on failures: each lost node, what the trial did about it, and what it cost."""

from collections.abc import Iterable
from dataclasses import dataclass

from analysis.metrics.goodput import NodeLossResult
from analysis.report.wording import NO_VALUE, format_number
from analysis.results.trial_result import TrialResult


@dataclass(frozen=True)
class FailureRow:
    """Row of the table of failures: one lost node. Times are texts in virtual seconds."""

    trial: str
    node: str
    time: str
    reason: str
    detection: str
    outcome: str  # what the trial did
    recovery: str
    return_time: str  # when the node was a member again
    lost: str  # mean over the workers


def make_failure_table(trials: Iterable[TrialResult]) -> tuple[FailureRow, ...]:
    """Return a row for each lost node, in the order of trials and times."""
    return tuple(
        FailureRow(
            trial=trial.id,
            node=loss.node,
            time=format_number(loss.time_s),
            reason=loss.reason,
            detection=format_number(loss.detection_s),
            outcome=_describe_outcome(trial, loss),
            recovery=format_number(loss.recovery_s),
            return_time=format_number(loss.member_again_s),
            lost=f"see {loss.lost_with}" if loss.lost_with else format_number(loss.lost_s),
        )
        for trial in trials
        for loss in trial.node_losses
    )


def _describe_outcome(trial: TrialResult, loss: NodeLossResult) -> str:
    """Return what the trial did, such as "restore: 8 of 8 workers, from step 120"."""
    policy = f"{trial.failure_policy}: " if trial.failure_policy else ""
    if loss.workers is None:
        return f"{policy}{'the trial failed' if trial.status == 'failed' else 'training did not go on'}"
    first_step = NO_VALUE if loss.first_step is None else f"from step {loss.first_step}"
    return f"{policy}{loss.workers} of {trial.workers} workers, {first_step}"
