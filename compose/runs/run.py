"""Execution of a scenario: creates the run folder or continues an interrupted run, and runs the trials in order."""

import secrets
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
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
from compose.runs.skipped_trials import (
    describe_skipped_trials,
    find_skipped_trials,
    find_trials_without_packages,
    without_skipped_trials,
)
from compose.runs.trial_attempts import HostDisturbanceFinder, RunObserver, TrialSequence, find_no_disturbance
from services.cluster.addresses import DummyAddresses
from services.plan import Plan, make_plan
from services.plan.trial_outcome import TrialOutcome
from services.scenario.scenario import Scenario
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
) -> FinishedRun:
    """Run all trials of a scenario and write them to a new run folder.

    If the run ends early, the folders of finished trials are complete, and `resume_run` continues the run.

    Args:
        scenario_file: scenario to run.
        engine_choice: engine that runs the nodes, and the reason for its choice.
        runs_folder: folder of all runs.
        run_observer: is called as the run proceeds.
        find_host_disturbance: decides whether a trial is repeated; by default no trial is.

    Raises:
        UserError: this host can't carry the scenario or any trial, or the run folder can't be created; no trial was
            started.
        HostError: the engine can't be prepared on this host.
        RunFolderError: a file in the run folder can't be written; the run has ended.
    """
    engine, scenario = engine_choice.engine, scenario_file.scenario
    with raise_on_first_stop_signal(), closing(engine):
        capacity_check = check_host_capacity(scenario, engine)
        create_runs_folder(runs_folder)  # before the engine is prepared, which can take minutes
        engine.prepare(run_observer)
        run_name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
        plan_trials = partial(
            make_trial_plans, scenario, scenario_file.question, engine, capacity_check, run_name=run_name
        )
        all_plans = plan_trials()
        engine.check_plans(all_plans)
        skipped_trials = find_skipped_trials(scenario, all_plans, engine)
        plans = without_skipped_trials(all_plans, skipped_trials)
        with explain_folder_errors(runs_folder):
            folder = create_run_folder(scenario_file, engine_choice, capacity_check, runs_folder, plans, skipped_trials)
        for sentence in describe_skipped_trials(skipped_trials):
            run_observer.engine_preparation_started(sentence)
        trials = TrialSequence(folder, engine, scenario.attempts, plan_trials, run_observer, find_host_disturbance)
        with lock_run_folder(folder):
            run_observer.run_started(scenario, engine.name, engine_choice.reason, plans, folder)
            return _finish_run(trials, {}, plans)


def resume_run(
    run: InterruptedRun,
    engine_choice: EngineChoice,
    command: str,
    run_observer: RunObserver,
    find_host_disturbance: HostDisturbanceFinder = find_no_disturbance,
) -> FinishedRun:
    """Run those trials of an interrupted run that have not ended.

    The caller holds the lock of the run folder. What is left of the interrupted trial is kept as an earlier attempt.

    Args:
        run: the interrupted run.
        engine_choice: the engine of the interrupted run, and the reason for its choice.
        command: command line, for the manifest.
        run_observer: is called as the run proceeds.
        find_host_disturbance: decides whether a trial is repeated; by default no trial is.

    Raises:
        UserError: this version of Ensayo plans other trials.
        HostError: the engine can't be prepared on this host.
        RunFolderError: a file in the run folder can't be written; the run has ended.
    """
    engine, scenario = engine_choice.engine, run.scenario
    with raise_on_first_stop_signal(), closing(engine):
        remove_leftovers(run.run_name)
        engine.prepare(run_observer)
        plan_trials = partial(
            make_trial_plans, scenario, run.question, engine, run.capacity_check, run_name=run.run_name
        )
        plans = without_skipped_trials(plan_trials(), run.skipped_trials)
        check_commands(plans)
        if tuple(plan.trial for plan in plans) != run.trial_names:
            raise UserError(
                f"{run.folder}: this version of Ensayo plans other trials than the version that started the run; "
                "continue the run with that version, or start a new run"
            )
        record_resumption(run.folder, command)
        trials = TrialSequence(run.folder, engine, scenario.attempts, plan_trials, run_observer, find_host_disturbance)
        remaining_plans = tuple(plan for plan in plans if plan.trial not in run.outcomes)
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
    all_plans = [make_plan(trial, "admission", engine.name, DummyAddresses()) for trial in scenario.trials()]
    plans = without_skipped_trials(all_plans, find_trials_without_packages(scenario, all_plans))
    check_commands(plans)
    check_run_timeouts(plans)
    return check_host_can_run(scenario, plans, find_host_capacity(engine, scenario.transport), MEASURED_COMPUTE_SPEED)


def make_trial_plans(
    scenario: Scenario, question: str, engine: TrialEngine, capacity_check: CapacityCheck, run_name: str
) -> tuple[Plan, ...]:
    """Make one plan for each trial of a run.

    All trials use the same addresses, since they run one after the other.
    """
    trials = scenario.trials()
    count = max(1 + trial.strategy.training_phases().server_count + trial.scenario.cluster.workers for trial in trials)
    addressing = engine.choose_addresses(run_name, count)
    dilation, alpha_s = capacity_check.dilation, capacity_check.calibrated_alpha_s
    return tuple(
        make_plan(trial, run_name, engine.name, addressing, question, dilation=dilation, alpha_s=alpha_s)
        for trial in trials
    )
