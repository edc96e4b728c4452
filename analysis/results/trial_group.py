"""Groups of trials that differ only by their seed."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from analysis.report.wording import TIMES_SIGN
from analysis.results.trial_result import TrialResult
from analysis.statistics.centre import Floats, olympic_mean

TimeMetric = Literal["time_to_target", "time_to_samples"]  # seconds to the target, or seconds per sample


@dataclass(frozen=True)
class TrialGroup:
    """Finished trials that differ only by their seed.

    Strategy, number of workers and swept values are equal.
    """

    strategy: str
    condition: str
    workers: int
    trials: tuple[TrialResult, ...]

    @property
    def is_baseline(self) -> bool:
        """Whether the group is the baseline, one worker alone.

        Other groups of trials are compared with the baseline.
        """
        return self.trials[0].baseline

    @property
    def server_count(self) -> int:
        """Number of dedicated servers in addition to the workers."""
        return self.trials[0].servers

    @property
    def gradient_bytes(self) -> int:
        """Bytes of a gradient or of the parameters on the wire, without compression; 0 if not known."""
        return self.trials[0].gradient_bytes

    @property
    def slowest_link_bps(self) -> float | None:
        """Smallest declared rate of a link; None if no rate is declared."""
        return self.trials[0].slowest_link_bps

    @property
    def name(self) -> str:
        """Name of the group of trials for figures, such as `ring ×4`.

        The swept values are added if there are any.
        """
        return f"{self.strategy} {TIMES_SIGN}{self.workers}" + (f" · {self.condition}" if self.condition else "")

    @property
    def description(self) -> str:
        """Name of the group of trials for sentences, such as `ring on 4 workers`.

        The swept values are added if there are any.
        """
        workers = f"{self.workers} worker{'s' * (self.workers != 1)}"
        name = "one worker alone" if self.is_baseline else f"{self.strategy} on {workers}"
        return f"{name} ({self.condition})" if self.condition else name

    @property
    def trials_by_seed(self) -> tuple[TrialResult, ...]:
        """Trials of the group in the order of their seeds.

        Trials of two groups can thus be paired.
        """
        return tuple(sorted(self.trials, key=lambda trial: trial.seed))

    @property
    def seeds(self) -> frozenset[int]:
        """Random seeds of the trials of the group."""
        return frozenset(trial.seed for trial in self.trials)

    def trial_times_s(self, time_metric: TimeMetric) -> Floats:
        """Return one time per trial, in the order of seeds.

        The time is the seconds to the target, or the seconds per sample of all workers. The time to a target that was
        missed is infinite.
        """
        if time_metric == "time_to_samples":
            return np.array([_seconds_per_sample(trial) for trial in self.trials_by_seed])
        return np.array([_infinite_if_none(trial.time_to_target_s) for trial in self.trials_by_seed])

    def mean_time_s(self, time_metric: TimeMetric) -> float:
        """Return the olympic mean of the times of all trials, in seconds.

        The result is infinite if too many trials missed the target.
        """
        return float(olympic_mean(self.trial_times_s(time_metric)))

    @property
    def time_to_target_s(self) -> float:
        """Olympic mean of the seconds that trials take to reach the target.

        An olympic mean leaves out the extreme trials. The result is infinite if too many trials missed the target.
        """
        return self.mean_time_s("time_to_target")

    @property
    def samples_to_target_by_seed(self) -> Floats:
        """Samples that each trial needed to reach the target, in the order of seeds.

        The result is infinite for a missed target.
        """
        return np.array([_infinite_if_none(trial.samples_to_target) for trial in self.trials_by_seed])

    @property
    def mean_samples_to_target(self) -> float:
        """Olympic mean of the samples that trials need to reach the target.

        An olympic mean leaves out the extreme trials. The result is infinite if too many trials missed the target.
        """
        return float(olympic_mean(self.samples_to_target_by_seed))

    @property
    def max_eval_gap_samples(self) -> float:
        """Maximum number of samples between the evaluation that reached the target and the previous one.

        0 if no trial reached the target. Evaluations round the samples to the target up by at most this number.
        """
        return float(max(trial.evaluation_samples or 0 for trial in self.trials))

    def time_rounding_s(self, time_metric: TimeMetric) -> float:
        """Return the seconds between evaluations.

        Times to the target are rounded up by these seconds. Return 0 for other time metrics.
        """
        return max(trial.evaluation_interval_s for trial in self.trials) if time_metric == "time_to_target" else 0.0

    @property
    def has_reached_target(self) -> bool:
        """Whether the mean time to the target is finite, because enough trials reached the target."""
        return bool(np.isfinite(self.time_to_target_s))

    @property
    def median_step_s(self) -> float | None:
        """Median step time of a trial in seconds, averaged over the repeated trials."""
        return _mean_or_none([trial.step_seconds["p50"] for trial in self.trials if trial.step_seconds])

    @property
    def measured_step_s(self) -> float | None:
        """Measured step time to compare with predictions, in seconds, averaged over the repeated trials."""
        return _mean_or_none([trial.typical_step_seconds for trial in self.trials if trial.typical_step_seconds])

    @property
    def predicted_step_s(self) -> float | None:
        """Predicted step time in seconds, averaged over the repeated trials."""
        return _mean_or_none([trial.predicted_step_seconds for trial in self.trials if trial.predicted_step_seconds])

    @property
    def predicted_mean_step_s(self) -> float | None:
        """Predicted mean step time in seconds, averaged over the trials of the group.

        The steps are those of `mean_s_by_step_phase`. None if not predicted.
        """
        predictions = [trial.predicted_mean_step_seconds for trial in self.trials]
        return _mean_or_none([seconds for seconds in predictions if seconds])

    @property
    def predicted_seconds_per_sample(self) -> float | None:
        """Predicted seconds per sample of all workers together, averaged over the repeated trials."""
        rates = [trial.predicted_samples_per_second for trial in self.trials]
        return _mean_or_none([1 / rate for rate in rates if rate])

    @property
    def mean_s_by_step_phase(self) -> dict[str, float]:
        """Seconds in each phase of a step, such as compute, averaged over the repeated trials.

        The result is empty if unlogged.
        """
        phases = [trial.phase_seconds for trial in self.trials if trial.phase_seconds]
        return {name: float(np.mean([each[name] for each in phases])) for name in phases[0]} if phases else {}

    @property
    def mean_hidden_communication_s(self) -> float | None:
        """Seconds of a step's compute with hidden communication, averaged over the repeated trials; None: unknown."""
        seconds = [trial.hidden_communication_seconds for trial in self.trials]
        return _mean_or_none([value for value in seconds if value is not None])

    @property
    def compute_utilisation(self) -> float | None:
        """Compute utilisation, averaged over the repeated trials; None if it is not known for one of them."""
        shares = [trial.compute_utilisation.share for trial in self.trials]
        return None if None in shares else _mean_or_none([share for share in shares if share is not None])

    @property
    def declares_failures(self) -> bool:
        """Whether the scenario declares events that end nodes, a failure policy, or checkpoints."""
        return self.trials[0].failure_policy is not None

    @property
    def failure_count(self) -> int:
        """Number of nodes that were lost in the repeated trials."""
        return sum(len(trial.node_losses) for trial in self.trials)

    @property
    def goodput(self) -> float | None:
        """Goodput, averaged over the repeated trials; None if it is not known for one of them."""
        shares = [trial.goodput.share for trial in self.trials]
        return None if None in shares else _mean_or_none([share for share in shares if share is not None])

    @property
    def mean_checkpoint_s_per_step(self) -> float | None:
        """Seconds of checkpoints per step of a worker, averaged over the repeated trials; None without checkpoints."""
        seconds = [trial.mean_checkpoint_seconds_per_step for trial in self.trials]
        return _mean_or_none([value for value in seconds if value is not None])


def group_trials(trials: Iterable[TrialResult]) -> tuple[TrialGroup, ...]:
    """Group finished trials by strategy, swept values and number of workers, in the order of first appearance."""
    members: dict[tuple[str, str, int], list[TrialResult]] = {}
    for trial in trials:
        if trial.is_finished:
            members.setdefault((trial.strategy, trial.condition, trial.workers), []).append(trial)
    return tuple(TrialGroup(*key, tuple(repeats)) for key, repeats in members.items())


def _seconds_per_sample(trial: TrialResult) -> float:
    """Return a trial's seconds per sample.

    Return zero if training took no time, as in simulations without compute speeds.
    """
    if trial.samples_per_second:
        return 1 / trial.samples_per_second
    return 0.0 if trial.seconds == 0 else float("inf")


def _infinite_if_none(value: float | None) -> float:
    return float("inf") if value is None else float(value)


def _mean_or_none(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
