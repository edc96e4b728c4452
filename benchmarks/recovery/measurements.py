"""All measurements of the benchmark: single kills under each policy, and many kills in one training."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from analysis.laws.checkpoint_interval import FailureCosts
from benchmarks.recovery.cases import (
    ABSENCE_S,
    COST_KILL_GAP_S,
    COST_KILLS,
    FIRST_COST_KILL_S,
    LARGE_CLUSTER,
    LARGE_CLUSTER_STEP_S,
    MAX_LOSS_DEVIATIONS,
    MEAN_GAP_S,
    SAMPLES_PER_STEP,
    SCHEDULE_SEED,
    SECONDS_AFTER_LAST_KILL,
    TRAINING_SAMPLES,
    cost_scenario,
    many_kills_scenario,
    policy_scenario,
    undisturbed_scenario,
    worker_names,
)
from benchmarks.recovery.expected_goodput import ExpectedRun, expect_rejoin_run, measure_costs
from benchmarks.recovery.kill_schedule import draw_kills
from benchmarks.recovery.node_resources import ResourceGrowth, find_longest_lives, sample_node_resources
from benchmarks.recovery.trials import MeasuredTrial, run_trials
from compose.engines.simulated import SimulatedEngine

EPOCH_S = TRAINING_SAMPLES / SAMPLES_PER_STEP[LARGE_CLUSTER] * LARGE_CLUSTER_STEP_S  # without kills
ReportProgress = Callable[[str], None]


@dataclass(frozen=True)
class LongTrial:
    """Training of eight workers with many kills, beside its prediction and undisturbed trainings."""

    trial: MeasuredTrial
    declared_kills: int
    costs: FailureCosts  # of one kill, measured in another trial
    cost_trial: MeasuredTrial
    undisturbed: tuple[MeasuredTrial, ...]  # with several seeds; the first has the seed of `trial`
    growth_by_node: Mapping[str, ResourceGrowth]

    @property
    def expected(self) -> ExpectedRun:
        """Goodput and duration by the closed form."""
        step_s = self.costs.step_s
        return expect_rejoin_run(self.costs, self.declared_kills, _work_s(self.trial.budget, step_s))

    @property
    def goodput_error(self) -> float:
        """Relative error of the closed form: measured / predicted - 1.

        Raises:
            ValueError: the goodput of the trial is not known.
        """
        share = self.trial.result.goodput.share
        if share is None:
            raise ValueError(f"the goodput is not known: {self.trial.result.goodput.reason}")
        return share / self.expected.goodput - 1

    @property
    def loss_deviations(self) -> float:
        """Distance of the final loss from the mean of the undisturbed trials, in their standard deviations."""
        losses = [trial.result.final["loss"] for trial in self.undisturbed]
        return (self.trial.result.final["loss"] - mean(losses)) / stdev(losses)

    @property
    def has_loss_of_other_seeds(self) -> bool:
        """Whether the final loss could be that of an undisturbed trial with another seed."""
        return abs(self.loss_deviations) <= MAX_LOSS_DEVIATIONS


@dataclass(frozen=True)
class RecoveryMeasurements:
    """Results of the benchmark."""

    continued: tuple[MeasuredTrial, ...]  # four workers, one of which is killed, with `continue`
    rejoined: tuple[MeasuredTrial, ...]  # the same with `rejoin`
    long: LongTrial | None  # None: without kills in a long training


def measure_recovery(engine: str, kills: int, runs_folder: Path, report: ReportProgress) -> RecoveryMeasurements:
    """Run all trials of the benchmark; no trial is repeated.

    Args:
        engine: that runs the trials with kills.
        kills: of the long trial; 0: only the trials with one kill.
        runs_folder: receives the run folders.
        report: receives a line before each run.
    """
    report("continue: one of four workers is killed")
    continued = run_trials(policy_scenario("continue"), engine, runs_folder)
    report("rejoin: one of four workers is killed and joins again")
    rejoined = run_trials(policy_scenario("rejoin"), engine, runs_folder)
    long = measure_many_kills(engine, kills, runs_folder, report) if kills else None
    return RecoveryMeasurements(tuple(continued), tuple(rejoined), long)


def measure_many_kills(engine: str, kills: int, runs_folder: Path, report: ReportProgress) -> LongTrial:
    """Measure the costs of a kill, then run the training with many kills, and undisturbed ones in virtual time."""
    report("eight workers: what a kill costs")
    cost_s = FIRST_COST_KILL_S + COST_KILLS * COST_KILL_GAP_S
    (cost_trial,) = run_trials(cost_scenario(round(cost_s / EPOCH_S)), engine, runs_folder)
    step_s = cost_trial.result.typical_step_seconds
    if step_s is None:
        raise ValueError(f"no step was measured: {cost_trial.result.status_reason}")
    costs = measure_costs(cost_trial.outcomes, LARGE_CLUSTER, step_s)
    schedule = draw_kills(worker_names(LARGE_CLUSTER), kills, MEAN_GAP_S, ABSENCE_S, SCHEDULE_SEED)
    epochs = choose_epochs(costs, kills, schedule[-1].time_s + SECONDS_AFTER_LAST_KILL)
    report(f"eight workers: {kills} kills in {epochs} epochs")
    with sample_node_resources(runs_folder) as samples:
        (trial,) = run_trials(many_kills_scenario(schedule, epochs), engine, runs_folder)
    report("eight workers without kills, in virtual time")
    undisturbed = run_trials(undisturbed_scenario(epochs), SimulatedEngine.name, runs_folder)
    return LongTrial(trial, kills, costs, cost_trial, tuple(undisturbed), find_longest_lives(samples))


def choose_epochs(costs: FailureCosts, kills: int, at_least_s: float) -> int:
    """Return the smallest number of epochs whose training with kills is expected to take at least so many seconds."""
    epochs = 1
    while expect_rejoin_run(costs, kills, _work_s(epochs * TRAINING_SAMPLES, costs.step_s)).seconds < at_least_s:
        epochs += 1
    return epochs


def _work_s(samples: int, step_s: float) -> float:
    """Return the virtual seconds that eight workers need for samples without kills."""
    return samples / SAMPLES_PER_STEP[LARGE_CLUSTER] * step_s
