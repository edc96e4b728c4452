"""Progress of a run, computed from the coordinator's log events and the clock.

Other modules display the progress.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from services.plan import Plan


@dataclass(frozen=True)
class TrialProgress:
    """Progress of one trial, computed from the log of its coordinator.

    Times are in virtual milliseconds.
    """

    sample_count: int = 0
    first_sample_count: int = 0  # of the checkpoint with which the trial began; 0 if it began anew
    step: int = 0  # after which the model was evaluated last
    metrics: Mapping[str, float] = field(default_factory=dict)  # of the last evaluation, on held-out samples
    training_start_ms: float | None = None
    latest_event_ms: float | None = None
    has_diverged: bool = False  # whether a loss was NaN or infinite; known when the trial has ended

    def updated_by_log_event(self, log_event: Mapping[str, Any]) -> Self:
        """Return a copy of the trial's progress, updated by one more log event."""
        metadata = log_event.get("metadata") or {}
        return replace(
            self,
            sample_count=max(self.sample_count, metadata.get("samples_count", 0)),
            first_sample_count=metadata.get("samples_count", 0)
            if log_event["key"] == "training_continued"
            else self.first_sample_count,
            step=metadata.get("step", 0) if log_event["key"] == "eval_metrics" else self.step,
            training_start_ms=log_event["time_ms"] if log_event["key"] == "run_start" else self.training_start_ms,
            latest_event_ms=log_event["time_ms"],
            metrics=log_event["value"] if log_event["key"] == "eval_metrics" else self.metrics,
            has_diverged=self.has_diverged or bool(metadata.get("diverged")),
        )

    @property
    def samples_per_s(self) -> float | None:
        """Training samples per virtual second since the start of training.

        The value is None before any time has passed.
        """
        if self.training_start_ms is None or self.latest_event_ms is None:
            return None
        if self.latest_event_ms <= self.training_start_ms:
            return None
        return 1000 * (self.sample_count - self.first_sample_count) / (self.latest_event_ms - self.training_start_ms)

    def __str__(self) -> str:
        metrics = sorted(self.metrics.items(), key=lambda metric: metric[0] != "loss")
        parts = [f"{name} {value:.4g}" for name, value in metrics]
        parts += [f"{self.samples_per_s:,.0f} samples/s"] if self.samples_per_s else []
        return ", ".join(parts)


@dataclass
class RunProgress:
    """Progress of a run: the trials that have ended, the running trial and the estimated remaining time."""

    plans: Sequence[Plan]
    clock: Callable[[], float]  # returns wall seconds
    trial_progress: TrialProgress = field(default_factory=TrialProgress)
    target_step: int | None = None  # of the running trial, at the first evaluation that reached the target
    started_trials: int = 0
    finished_trials_s: list[float] = field(default_factory=list)  # wall seconds of each ended trial
    _trial_started_s: float = 0.0

    def start_trial(self) -> None:
        """Record that the next trial starts now."""
        self.started_trials += 1
        self.restart_trial()

    def restart_trial(self) -> None:
        """Record that the running trial starts again."""
        self.trial_progress, self.target_step = TrialProgress(), None
        self._trial_started_s = self.clock()

    def record_log_event(self, log_event: Mapping[str, Any]) -> None:
        """Record a log event of the running trial's coordinator."""
        self.trial_progress = self.trial_progress.updated_by_log_event(log_event)
        target = self.current_plan.target
        if target and self.target_step is None and log_event["key"] == "eval_metrics":
            step = self.finished_steps_of_trial if self.has_known_length else self.trial_progress.step
            self.target_step = step if target.is_reached(self.trial_progress.metrics) else None

    def finish_trial(self, wall_s: float) -> None:
        """Record that the running trial has ended after `wall_s` seconds of wall time."""
        self.finished_trials_s.append(wall_s)

    @property
    def current_plan(self) -> Plan:
        """Plan of the running trial."""
        return self.plans[self.started_trials - 1]

    @property
    def finished_steps_of_trial(self) -> int:
        """Number of finished steps of the running trial.

        The number is computed from the number of samples used so far. Step numbers cannot be used, because asynchronous
        workers count their steps separately.
        """
        return round(self._trial_completed_share() * self.current_plan.steps)

    @property
    def has_known_length(self) -> bool:
        """Whether the number of steps of the running trial is known: that of a user's command is not."""
        return self.current_plan.sample_budget > 0

    def remaining_s(self) -> float | None:
        """Return the estimated wall time in seconds until all trials have ended; None while it can't be estimated.

        A trial takes the time of its plan. Plans in virtual time have none; such a trial takes the mean time of the
        ended trials, or before the first end, as long per sample as the running trial.
        """
        is_trial_running = self.started_trials > len(self.finished_trials_s)
        waiting_s = [self._expected_trial_s(plan) for plan in self.plans[self.started_trials :]]
        parts_s = [*waiting_s, *([self._remaining_trial_s()] if is_trial_running else [])]
        known_s = [seconds for seconds in parts_s if seconds is not None]
        return sum(known_s) if len(known_s) == len(parts_s) else None

    def _trial_completed_share(self) -> float:
        """Return the used share of the running trial's sample budget, from 0 to 1."""
        budget = self.current_plan.sample_budget
        return min(1.0, self.trial_progress.sample_count / budget) if budget else 0.0

    def _remaining_trial_s(self) -> float | None:
        elapsed_s, share = self.clock() - self._trial_started_s, self._trial_completed_share()
        if share:
            return elapsed_s * (1 - share) / share
        expected_s = self._expected_trial_s(self.current_plan)
        return None if expected_s is None else max(0.0, expected_s - elapsed_s)

    def _expected_trial_s(self, plan: Plan) -> float | None:
        """Return the expected wall time of a trial in seconds; None if nothing is known about it."""
        if plan.estimated_training_wall_s:
            return plan.estimated_training_wall_s
        if self.finished_trials_s:
            return sum(self.finished_trials_s) / len(self.finished_trials_s)
        return self._extrapolate_trial_s(plan)

    def _extrapolate_trial_s(self, plan: Plan) -> float | None:
        """Return the wall time of a trial that takes as long per sample as the running trial has taken so far."""
        samples = self.trial_progress.sample_count
        if not samples or not plan.sample_budget:
            return None
        return (self.clock() - self._trial_started_s) * plan.sample_budget / samples
