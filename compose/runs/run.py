"""Execution of a scenario: creates the run folder or continues an interrupted run, and runs the trials in order."""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from compose.calibration.capacity import find_host_capacity
from compose.commands.limits import check_commands
from compose.engines import EngineChoice
from compose.engines.base import TrialEngine
from compose.host.capacity_check import CapacityCheck, check_host_can_run, make_virtual_time_check
from compose.host.compute_speed import MEASURED_COMPUTE_SPEED
from compose.host.timeout_check import check_run_timeouts
from compose.runs.clean import remove_leftovers
from compose.runs.interrupt import raise_on_first_stop_signal
from compose.runs.interrupted_run import InterruptedRun, lock_run_folder, record_resumption
from compose.runs.run_folder import ScenarioFile, create_run_folder, create_runs_folder, explain_folder_errors
from compose.runs.trials.candidate_probes import CandidateProbes, ProbeMeter
from compose.runs.trials.continued_trials import check_attempt
from compose.runs.trials.skipped_trials import (
    describe_skipped_trials,
    find_skipped_trials,
    find_trials_without_packages,
    without_skipped_trials,
)
from compose.runs.trials.trial_attempts import HostDisturbanceFinder, RunObserver, TrialSequence, find_no_disturbance
from services.cluster.addresses import DummyAddresses
from services.plan import Plan, TrainingPlan, make_plan
from services.plan.trial_outcome import TrialOutcome
from services.scenario.scenario import Scenario, TrialSpec
from services.schema.errors import UserError


@dataclass(frozen=True)
class FinishedRun:
    """Result of a run: the run folder, and the outcome of the last attempt at each trial that has run."""

    folder: Path
    statuses: tuple[TrialOutcome, ...]
    interrupted: bool  # whether a stop signal has ended it before its last trial was complete


def run_scenario(
    scenario_file: ScenarioFile,
    engine_choice: EngineChoice,
    runs_folder: Path,
    run_observer: RunObserver,
    find_host_disturbance: HostDisturbanceFinder = find_no_disturbance,
    measure_probe_step_s: ProbeMeter | None = None,
) -> FinishedRun:
    """Run all trials of a scenario and write them to a new run folder.

    If the run ends early, the folders of finished trials are complete, and `resume_run` continues the run.

    Args:
        scenario_file: scenario to run.
        engine_choice: engine that runs the nodes, and the reason for its choice.
        runs_folder: folder of all runs.
        run_observer: is called as the run proceeds.
        find_host_disturbance: decides whether a trial is repeated; by default no trial is.
        measure_probe_step_s: reads the step time of a probe from its folder; None: no probe runs.

    Raises:
        UserError: this host can't carry the scenario or any trial, or the run folder can't be created; no trial was
            started.
        HostError: the engine can't be prepared on this host.
        RunFolderError: a file in the run folder can't be written; the run has ended.
        EngineLostError: the engine does not answer any more; the run has ended.
    """
    engine, scenario = engine_choice.engine, scenario_file.scenario
    with raise_on_first_stop_signal(), closing(engine):
        capacity_check = check_host_capacity(scenario, engine)
        create_runs_folder(runs_folder)  # before the engine is prepared, which can take minutes
        engine.prepare(run_observer)
        run_name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
        planner = TrialPlanner(scenario, scenario_file.question, engine, capacity_check, run_name)
        all_plans = planner.plan_trials()
        engine.check_plans(all_plans)
        skipped_trials = find_skipped_trials(scenario, all_plans, engine)
        plans = without_skipped_trials(all_plans, skipped_trials)
        with explain_folder_errors(runs_folder):
            folder = create_run_folder(scenario_file, engine_choice, capacity_check, runs_folder, plans, skipped_trials)
        for sentence in describe_skipped_trials(skipped_trials):
            run_observer.engine_preparation_started(sentence)
        trials = _make_trial_sequence(planner, folder, run_observer, find_host_disturbance, measure_probe_step_s)
        with lock_run_folder(folder):
            run_observer.run_started(scenario, engine.name, engine_choice.reason, plans, folder)
            return _finish_run(trials, {}, plans)


def resume_run(
    run: InterruptedRun,
    engine_choice: EngineChoice,
    command: str,
    run_observer: RunObserver,
    find_host_disturbance: HostDisturbanceFinder = find_no_disturbance,
    measure_probe_step_s: ProbeMeter | None = None,
) -> FinishedRun:
    """Run those trials of an interrupted run that have not ended.

    The caller holds the lock of the run folder. What is left of the interrupted trial is kept as an earlier attempt,
    and the trial continues from its last checkpoint if there is one.

    Args:
        run: the interrupted run.
        engine_choice: the engine of the interrupted run, and the reason for its choice.
        command: command line, for the manifest.
        run_observer: is called as the run proceeds.
        find_host_disturbance: decides whether a trial is repeated; by default no trial is.
        measure_probe_step_s: reads the step time of a probe from its folder; None: no probe runs.

    Raises:
        UserError: this version of Ensayo plans other trials, or the scenario has changed since the checkpoints of the
            interrupted trial were written.
        HostError: the engine can't be prepared on this host.
        RunFolderError: a file in the run folder can't be written; the run has ended.
        EngineLostError: the engine does not answer any more; the run has ended.
    """
    engine, scenario = engine_choice.engine, run.scenario
    with raise_on_first_stop_signal(), closing(engine):
        remove_leftovers(run.run_name)
        engine.prepare(run_observer)
        planner = TrialPlanner(scenario, run.question, engine, run.capacity_check, run.run_name)
        plans = without_skipped_trials(planner.plan_trials(), run.skipped_trials)
        check_commands(plans)
        if tuple(plan.trial for plan in plans) != run.trial_names:
            raise UserError(
                f"{run.folder}: this version of Ensayo plans other trials than the version that started the run; "
                "continue the run with that version, or start a new run"
            )
        remaining_plans = tuple(plan for plan in plans if plan.trial not in run.outcomes)
        for plan in remaining_plans:
            check_attempt(plan, run.folder / "trials" / plan.trial)
        record_resumption(run.folder, command)
        trials = _make_trial_sequence(planner, run.folder, run_observer, find_host_disturbance, measure_probe_step_s)
        run_observer.run_started(scenario, engine.name, engine_choice.reason, remaining_plans, run.folder)
        return _finish_run(trials, run.outcomes, remaining_plans)


def _finish_run(
    trials: TrialSequence, earlier_outcomes: Mapping[str, TrialOutcome], plans: tuple[Plan, ...]
) -> FinishedRun:
    """Run the trials of the given plans, and return the outcomes of all trials that have ended."""
    outcomes = dict(earlier_outcomes)
    try:
        for outcome in trials.run_trials(plans):
            outcomes[outcome.trial] = outcome
    except KeyboardInterrupt:
        return FinishedRun(trials.run_folder, tuple(outcomes.values()), interrupted=True)
    return FinishedRun(trials.run_folder, tuple(outcomes.values()), interrupted=False)


def check_host_capacity(scenario: Scenario, engine: TrialEngine) -> CapacityCheck:
    """Check whether this host is fast enough to run a scenario on an engine, and whether its time limit is sufficient.

    The check also chooses the value of `dilation: auto`. The engine `simulated` needs no check.

    Raises:
        UserError: this host can't carry the scenario, packages of a command are missing, or a trial needs more time
            than `timeouts.run`.
    """
    if engine.name == "simulated":
        if any(trial.scenario.workload.kind == "command" for trial in scenario.trials()):
            raise UserError("a command runs in real processes; use --engine docker or --engine local")
        return make_virtual_time_check()
    all_plans = [plan for trial in scenario.trials() for plan in _plan_for_admission(trial, engine)]
    plans = without_skipped_trials(all_plans, find_trials_without_packages(scenario, all_plans))
    check_commands(plans)
    check_run_timeouts(plans)
    return check_host_can_run(scenario, plans, find_host_capacity(engine, scenario.transport), MEASURED_COMPUTE_SPEED)


def _plan_for_admission(trial: TrialSpec, engine: TrialEngine) -> Iterator[Plan]:
    """Yield the plan of a trial, and the plans under the other candidates of its strategy that are probed."""
    plan = make_plan(trial, "admission", engine.name, DummyAddresses())
    yield plan
    for number in plan.strategy_choice.numbers_to_probe if plan.strategy_choice else ():
        candidate = trial.strategy.list_candidates()[number]
        yield make_plan(trial.with_strategy(candidate), "admission", engine.name, DummyAddresses())


@dataclass(frozen=True)
class TrialPlanner:
    """Planner of the trials of one run, on an engine and this host."""

    scenario: Scenario
    question: str  # of the scenario
    engine: TrialEngine
    capacity_check: CapacityCheck
    run_name: str

    def plan_trials(self) -> tuple[Plan, ...]:
        """Make one plan for each trial of the run.

        All trials use the same addresses, since they run one after the other.
        """
        return self._make_plans(self.scenario.trials())

    def plan_candidate(self, trial_name: str, candidate_number: int) -> TrainingPlan:
        """Make the plan of a trial under one of the candidates among which its strategy is chosen."""
        trial = next(trial for trial in self.scenario.trials() if trial.id == trial_name)
        candidate = trial.strategy.list_candidates()[candidate_number]
        [plan] = self._make_plans((trial.with_strategy(candidate),))
        if not isinstance(plan, TrainingPlan):
            raise TypeError(f"trial {trial_name} runs a command, whose strategy is not chosen among candidates")
        return plan

    def _make_plans(self, trials: tuple[TrialSpec, ...]) -> tuple[Plan, ...]:
        node_counts = (
            1 + trial.strategy.training_phases().server_count + trial.scenario.cluster.workers for trial in trials
        )
        addressing = self.engine.choose_addresses(self.run_name, max(node_counts))
        dilation, alpha_s = self.capacity_check.dilation, self.capacity_check.calibrated_alpha_s
        return tuple(
            make_plan(
                trial, self.run_name, self.engine.name, addressing, self.question, dilation=dilation, alpha_s=alpha_s
            )
            for trial in trials
        )


def _make_trial_sequence(
    planner: TrialPlanner,
    run_folder: Path,
    run_observer: RunObserver,
    find_host_disturbance: HostDisturbanceFinder,
    measure_probe_step_s: ProbeMeter | None,
) -> TrialSequence:
    """Return the sequence that runs the planned trials in a run folder."""
    probes = CandidateProbes(run_folder, planner.engine, planner.plan_candidate, measure_probe_step_s, run_observer)
    return TrialSequence(
        run_folder,
        planner.engine,
        planner.scenario.attempts,
        planner.plan_trials,
        run_observer,
        find_host_disturbance,
        probes,
    )
