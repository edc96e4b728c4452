"""Table of a report on communication: how much of it the compute of a step hides."""

from collections.abc import Iterable
from dataclasses import dataclass

from analysis.results.trial_result import TrialResult


@dataclass(frozen=True)
class CommunicationRow:
    """Mean seconds per step of one trial, over workers and steps."""

    trial: str
    step_s: float
    predicted_step_s: float | None  # by the closed form, to which only exposed communication adds; None: no prediction
    compute_s: float  # the hidden communication included
    hidden_s: float  # a collective is in flight, and the worker does not wait for it
    exposed_s: float  # the worker waits for a collective

    @property
    def hidden_share(self) -> float | None:
        """Share of the communication that is hidden; None without communication."""
        communication_s = self.hidden_s + self.exposed_s
        return self.hidden_s / communication_s if communication_s else None


def make_communication_table(trials: Iterable[TrialResult]) -> tuple[CommunicationRow, ...]:
    """Return a row for each trial on several workers whose communication was measured within the steps."""
    return tuple(
        CommunicationRow(
            trial=trial.id,
            step_s=sum(trial.phase_seconds.values()),
            predicted_step_s=trial.predicted_mean_step_seconds,
            compute_s=trial.phase_seconds["compute"],
            hidden_s=trial.hidden_communication_seconds,
            exposed_s=trial.phase_seconds["exchange"] + trial.phase_seconds["wait"],
        )
        for trial in trials
        if trial.workers > 1 and trial.phase_seconds and trial.hidden_communication_seconds is not None
    )
