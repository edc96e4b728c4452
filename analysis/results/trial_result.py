"""Metrics of one trial, and groups of trials that differ only by their seed."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from analysis.checks.verdict import CheckVerdict, VerdictLevel, worst_verdict_level
from analysis.convergence.compare import ReferenceComparison, compare_trial_with_reference
from analysis.convergence.reference_points import shipped_references
from analysis.metrics.batch_shares import BatchBalanceResult, measure_batch_balance
from analysis.metrics.bytes_sent import bytes_sent, expected_bytes_sent
from analysis.metrics.collectives import CollectiveTimes, count_extra_collectives, measure_collectives
from analysis.metrics.compute_utilisation import (
    UNKNOWN_UTILISATION,
    ComputeUtilisation,
    measure_compute_utilisation,
)
from analysis.metrics.consensus import ConsensusResult, measure_consensus
from analysis.metrics.event_outcomes import PlannedVsActualTimes, find_event_times
from analysis.metrics.predicted_step import predicted_mean_step_s, predicted_typical_step_s
from analysis.metrics.progress import final_eval_metrics, samples_per_second, steps_done, trained_sample_count
from analysis.metrics.running_costs import measure_running_costs
from analysis.metrics.staleness import staleness_statistics
from analysis.metrics.startup import startup_s
from analysis.metrics.step_seconds import (
    StepStatistic,
    mean_hidden_communication_s,
    step_phase_seconds,
    step_time_statistic_name,
    step_time_statistics,
    typical_step_s,
)
from analysis.metrics.strategy_choice import StrategyChoiceResult, describe_strategy_choice
from analysis.metrics.strategy_switch import StrategySwitchResult, measure_switch_times
from analysis.metrics.target import (
    EvaluatedModel,
    evaluated_model,
    evaluation_count,
    evaluation_interval_samples,
    evaluation_seconds,
    samples_to_target,
    time_to_target_s,
)
from analysis.metrics.worker_samples import WorkerSampleCounts, count_worker_samples
from analysis.reading.run_table import TrialLogTables
from analysis.statistics.centre import Floats, olympic_mean

TrialStatus = Literal["success", "missed_target", "failed", "aborted"]
TIMES_SIGN = "\N{MULTIPLICATION SIGN}"
SweepLabels = dict[str, str | int | float]  # swept key -> value
TimeMetric = Literal["time_to_target", "time_to_samples"]  # seconds to the target, or seconds per sample


@dataclass(frozen=True)
class TrialResult:
    """Metrics of one trial.

    The names of the fields are the keys in summary.json and must not change. Times are virtual seconds. Predictions are
    those of the strategy's closed form.
    """

    id: str
    strategy: str
    workers: int
    servers: int
    repeat: int
    seed: int
    labels: SweepLabels
    status: TrialStatus
    verdict: VerdictLevel
    reasons: list[str]
    steps: int
    samples: int
    seconds: float | None
    samples_per_second: float | None
    time_to_target_s: float | None
    samples_to_target: int | None
    final: dict[str, float]
    step_seconds: dict[str, float] | None
    predicted_step_seconds: float | None  # predicted counterpart of `typical_step_seconds`
    phase_seconds: dict[str, float] | None  # mean per step phase, over steps on whole batches if there are any
    bytes_sent: dict[str, int]
    expected_bytes_sent: dict[str, int]
    staleness: dict[str, Any] | None
    params_sha256: str | None
    # Keys that were added later:
    baseline: bool
    condition: str  # swept keys and values except workers, as one phrase
    declared_samples_per_second: float | None  # sum over the workers
    target: str | None
    status_reason: str
    events: list[PlannedVsActualTimes]
    typical_step_seconds: float | None  # measured counterpart of the predicted step: see `typical_of`
    predicted_samples_per_second: float | None  # of all workers, dropped gradients included
    switch: StrategySwitchResult | None = None  # of a strategy that switches
    evaluation_samples: int | None = None  # samples between the evaluation that reached the target and the previous one
    predicted_mean_step_seconds: float | None = None  # predicted mean over the steps that `phase_seconds` averages
    saturates_at: float | None = None  # predicted number of workers that saturate the servers' links
    typical_of: StepStatistic = "median"  # statistic of the steps that `typical_step_seconds` is; one value per round
    disturbed_attempts: list[str] = field(default_factory=list)  # how the host disturbed each repeated attempt
    worker_samples: list[WorkerSampleCounts] = field(default_factory=list)  # by rank
    diverged: bool = False  # a loss was NaN or infinite; false where the files of the trial are damaged
    evaluations: int = 0  # up to the evaluation that reached the target; all evaluations if the target was missed
    evaluation_seconds: float | None = None  # of these evaluations; None where they were not logged
    startup_s: float | None = None  # wall seconds from the start of the nodes to the first step; None: not measured
    reference: ReferenceComparison | None = None  # with reference convergence points; None: the workload has none
    collectives: list[CollectiveTimes] = field(default_factory=list)  # of a user's command
    extra_collectives: int = 0  # of a rank of a user's command, such as those of evaluations
    hidden_communication_seconds: float | None = (
        None  # of `phase_seconds["compute"]`, of a user's command; None: unknown
    )
    accelerator_hours: float | None = None  # workers times hours of training
    energy_joules: float | None = None  # modelled from declared power draws
    energy_reason: str = ""  # why the energy is not known
    cost: float | None = None  # from declared prices, in `currency`
    currency: str | None = None
    cost_reason: str = ""  # why the cost is not known
    compute_utilisation: ComputeUtilisation = UNKNOWN_UTILISATION  # share of the step time that is not blocked
    batch_balance: BatchBalanceResult | None = None  # None: all workers have equal shares of a batch
    strategy_choice: StrategyChoiceResult | None = None  # of a strategy that was chosen among candidates
    consensus: ConsensusResult | None = None  # of a gossip strategy
    evaluated_model: EvaluatedModel | None = "shared"  # parameters on which the target is decided; None: of a command

    @property
    def is_finished(self) -> bool:
        """Whether training ran to its end, even if it missed its target."""
        return self.status in ("success", "missed_target") and self.samples > 0

    @property
    def evaluation_interval_s(self) -> float:
        """Seconds between the evaluation that reached the target and the previous evaluation.

        The value is 0 if the target was missed.
        """
        if not self.samples_to_target or not self.time_to_target_s or not self.evaluation_samples:
            return 0.0
        return self.time_to_target_s * self.evaluation_samples / self.samples_to_target

    @property
    def step_time_mean_or_median_name(self) -> StepStatistic:
        """Statistic of measured step times (mean or median) that is compared with the predicted step time.

        After a switch it is the mean, because a median would be a step of only one of the two strategies.
        """
        return "mean" if self.switch and self.switch.has_switched else self.typical_of

    @property
    def measured_step_seconds(self) -> float | None:
        """Measured step time in seconds, for comparison with the predicted step time.

        It is a mean or a median of the steps.
        """
        if self.switch and self.switch.has_switched:
            return sum(self.phase_seconds.values()) if self.phase_seconds else None
        return self.typical_step_seconds

    @property
    def unpredicted_step_time_share(self) -> float | None:
        """Share by which the measured step time exceeds the predicted step time.

        It is measured step time / predicted step time - 1: the share that the formula does not predict.
        """
        if not self.measured_step_seconds or not self.predicted_step_seconds:
            return None
        return self.measured_step_seconds / self.predicted_step_seconds - 1


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


def group_trials(trials: Iterable[TrialResult]) -> tuple[TrialGroup, ...]:
    """Group finished trials by strategy, swept values and number of workers, in the order of first appearance."""
    members: dict[tuple[str, str, int], list[TrialResult]] = {}
    for trial in trials:
        if trial.is_finished:
            members.setdefault((trial.strategy, trial.condition, trial.workers), []).append(trial)
    return tuple(TrialGroup(*key, tuple(repeats)) for key, repeats in members.items())


def choose_time_metric(trial_groups: Iterable[TrialGroup], *, require_all: bool = False) -> TimeMetric:
    """Return which time is used to compare groups of trials.

    It is the time to the target if any group reached the target, else the time per sample. With `require_all` it is the
    time to the target only if all groups reached it. Ratios of times need that, because a ratio with an infinite time
    has no meaning.
    """
    reached = [group.has_reached_target for group in trial_groups]
    return "time_to_target" if (all if require_all else any)(reached) else "time_to_samples"


def have_same_seeds(trial_groups: Sequence[TrialGroup]) -> bool:
    """Return whether all groups of trials ran the same seeds, each seed once.

    More than one seed is needed.
    """
    seeds = [[trial.seed for trial in group.trials_by_seed] for group in trial_groups]
    return len(set(seeds[0])) == len(seeds[0]) > 1 and all(each == seeds[0] for each in seeds)


def restrict_to_shared_seeds(first_group: TrialGroup, second_group: TrialGroup) -> tuple[TrialGroup, TrialGroup]:
    """Return two groups of trials with only those repeats whose seeds ran in both groups.

    Results differ more between seeds than between repeats of one seed.
    """
    shared = first_group.seeds & second_group.seeds
    first_shared, second_shared = (
        replace(group, trials=tuple(trial for trial in group.trials if trial.seed in shared))
        for group in (first_group, second_group)
    )
    return first_shared, second_shared


def find_baseline(trial_group: TrialGroup, candidate_groups: Iterable[TrialGroup]) -> TrialGroup | None:
    """Return the one-worker baseline that ran with the same swept values as a group of trials.

    Return None without one. Swept keys of a strategy, such as its number of servers, do not apply to a baseline.
    """
    baselines = (candidate for candidate in candidate_groups if candidate.is_baseline)
    return next((baseline for baseline in baselines if _is_baseline_of(baseline, trial_group)), None)


def sort_by_step_time(trial_groups: Sequence[TrialGroup]) -> list[TrialGroup]:
    """Return groups of trials, sorted by step time if they differ only by strategy.

    Otherwise, the given order is kept.
    """
    kinds = {(group.condition, group.workers) for group in trial_groups if not group.is_baseline}
    return list(trial_groups) if len(kinds) > 1 else sorted(trial_groups, key=lambda group: group.median_step_s or 0.0)


def _is_baseline_of(baseline_group: TrialGroup, trial_group: TrialGroup) -> bool:
    """Return whether a group of trials has the same swept values as a one-worker baseline.

    All swept keys of the baseline except workers are compared.
    """
    labels = trial_group.trials[0].labels
    baseline_labels = ((key, value) for key, value in baseline_group.trials[0].labels.items() if key != "workers")
    return all(labels.get(key) == value for key, value in baseline_labels)


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
