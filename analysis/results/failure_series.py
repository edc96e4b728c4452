"""Series of trials of one strategy and failure policy, with the costs of failures that the trials measured."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from analysis.laws.checkpoint_interval import FailureCosts
from analysis.results.checkpoint_interval import IntervalUnit, interval_seconds
from analysis.results.trial_result import TrialResult
from analysis.statistics.centre import Floats

RESTORE, CONTINUE, REJOIN = "restore", "continue", "rejoin"  # failure policies with a closed form


@dataclass(frozen=True)
class FailureSeries:
    """Trials of one strategy, failure policy and number of workers; failure rates and checkpoint intervals may vary."""

    strategy: str
    policy: str
    workers: int
    trials: tuple[TrialResult, ...]

    @property
    def key(self) -> tuple[str, str, int]:
        """Strategy, policy and number of workers."""
        return self.strategy, self.policy, self.workers

    @property
    def costs(self) -> FailureCosts | None:
        """Mean costs of the failures in the trials; None if no failure was measured."""
        recovered = [loss for trial in self.trials for loss in trial.node_losses if loss.recovery_s is not None]
        steps_s = [trial.typical_step_seconds for trial in self.trials if trial.typical_step_seconds]
        if not recovered or not steps_s:
            return None
        detection_s = float(np.mean([loss.detection_s or 0.0 for loss in recovered]))
        recovery_s = float(np.mean([loss.recovery_s for loss in recovered if loss.recovery_s is not None]))
        stopped_s = self._mean_s_per_loss("recovery", 1)
        costs = FailureCosts(self.workers, detection_s, recovery_s, float(np.mean(steps_s)), self._checkpoint_s())
        absence_s = costs.downtime_s + self._mean_s_per_loss("absence", self.workers)
        return replace(costs, absence_s=absence_s, join_s=max(0.0, stopped_s - recovery_s))

    def _mean_s_per_loss(self, part: str, workers: int) -> float:
        """Return the seconds of a part of the goodput's complement per lost node, summed over `workers` workers."""
        shares = [(getattr(trial.goodput, part) or 0.0) * (trial.seconds or 0.0) for trial in self.trials]
        return workers * sum(shares) / max(1, sum(len(trial.node_losses) for trial in self.trials))

    def _checkpoint_s(self) -> float:
        """Return the mean seconds of a checkpoint."""
        known = [trial.mean_checkpoint_seconds for trial in self.trials]
        seconds = [value for value in known if value is not None]
        return float(np.mean(seconds)) if seconds else 0.0

    def _run_s(self, system_mtbf_s: Floats) -> Floats:
        """Return the mean seconds of a trial, interpolated between the failure rates of the trials."""
        by_rate: dict[float, list[float]] = {}
        for trial in self.trials:
            by_rate.setdefault(trial.failure_interval_s or 0.0, []).append(trial.seconds or 0.0)
        mtbfs_s = sorted(by_rate)
        mean_run_s = [np.mean(by_rate[mtbf_s]) for mtbf_s in mtbfs_s]
        return np.asarray(np.interp(np.log(system_mtbf_s), np.log(mtbfs_s), mean_run_s))

    def expected_goodput(
        self, system_mtbf_s: Floats, interval: float | Floats | None, unit: IntervalUnit = "steps"
    ) -> Floats | None:
        """Return the goodput by the closed form of the policy; None if it has none, or if no failure was measured.

        Args:
            system_mtbf_s: mean time between failures of all workers together.
            interval: declared interval between two checkpoints; None without checkpoints.
            unit: unit of the interval.
        """
        costs = self.costs
        if costs is None:
            return None
        worker_mtbf_s = self.workers * system_mtbf_s
        if self.policy == RESTORE and interval is not None:
            return costs.restore_goodput(interval_seconds(interval, unit, costs.step_s), worker_mtbf_s)
        if self.policy == CONTINUE:
            return costs.continue_goodput(worker_mtbf_s, self._run_s(system_mtbf_s))
        return costs.rejoin_goodput(worker_mtbf_s) if self.policy == REJOIN else None


def list_failure_series(trials: Iterable[TrialResult]) -> list[FailureSeries]:
    """Return the series of all finished trials with a goodput and a declared rate of failures.

    The series are in the order of the trials.
    """
    members: dict[tuple[str, str, int], list[TrialResult]] = {}
    for trial in trials:
        is_measured = trial.is_finished and not trial.baseline and trial.goodput.share is not None
        if is_measured and trial.failure_interval_s and trial.failure_policy:
            members.setdefault((trial.strategy, trial.failure_policy, trial.workers), []).append(trial)
    return [FailureSeries(*key, tuple(found)) for key, found in members.items()]
