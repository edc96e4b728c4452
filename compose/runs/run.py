"""Execution of a scenario: creates the run folder, and runs the trials one after the other.

The run folder gets a manifest.
"""

import json
import platform
import secrets
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Protocol

import yaml

from compose.calibration.capacity import find_host_capacity
from compose.engines import EngineChoice
from compose.engines.base import EnginePreparationObserver, TrialEngine, TrialEventObserver
from compose.host.capacity_check import CapacityCheck, check_host_can_run, make_virtual_time_check
from compose.host.compute_speed import MEASURED_COMPUTE_SPEED
from compose.host.host_facts import available_core_count, host_memory_bytes, processor_model
from compose.runs.git_commit import git_commit_of_checkout
from compose.runs.interrupt import raise_on_first_stop_signal
from compose.runs.supervisor import failure_reason
from services.cluster.addresses import DummyAddresses
from services.plan import Plan, make_plan
from services.plan.trial_outcome import TrialOutcome
from services.scenario.scenario import Scenario
from services.schema.errors import EnsayoError, UserError

RECORDED_LIBRARIES = ("ensayo", "numpy", "grpcio", "protobuf", "pydantic", "cryptography")


class RunFolderError(EnsayoError):
    """Error because the files of a run that has started can't be written, for example on a full disk."""


class RunObserver(TrialEventObserver, EnginePreparationObserver, Protocol):
    """Observer of the progress of a run, such as a display in the terminal."""

    def run_started(
        self, scenario: Scenario, engine_name: str, why_this_engine: str, plans: tuple[Plan, ...], run_folder: Path
    ) -> None:
        """Handle the start of a run.

        The trials are already planned, and the run folder exists.
        """

    def trial_started(self, plan: Plan, trial_number: int, trial_count: int) -> None:
        """Handle the start of a trial.

        The number of the trial is counted from 1.
        """

    def trial_ended(self, plan: Plan, trial_status: str, wall_s: float) -> None:
        """Handle the end of a trial, after its folder is complete.

        The duration of the trial is in wall seconds.
        """


@dataclass(frozen=True)
class ScenarioFile:
    """A scenario, the text of its file, and the command that started the run."""

    scenario: Scenario
    text: str  # text of the scenario file
    question: str  # first comment of the file
    command: str = ""  # command line, for the manifest


@dataclass(frozen=True)
class FinishedRun:
    """Result of a run: the run folder, and the status of each trial that has run."""

    folder: Path
    statuses: tuple[TrialOutcome, ...]
    interrupted: bool  # whether a stop signal has ended it before its last trial was complete


def run_scenario(
    scenario_file: ScenarioFile, engine_choice: EngineChoice, runs_folder: Path, run_observer: RunObserver
) -> FinishedRun:
    """Run all trials of a scenario and write them to a new run folder.

    If the run ends early, the folders of finished trials are complete.

    Args:
        scenario_file: scenario to run.
        engine_choice: engine that runs the nodes, and the reason for its choice.
        runs_folder: folder of all runs.
        run_observer: is called as the run proceeds.

    Raises:
        UserError: this host can't carry the scenario, or the run folder can't be created; no trial was started.
        HostError: the engine can't be prepared on this host.
        RunFolderError: a file in the run folder can't be written; the run has ended.
    """
    engine = engine_choice.engine
    with raise_on_first_stop_signal(), closing(engine):
        capacity_check = check_host_capacity(scenario_file.scenario, engine)
        create_runs_folder(runs_folder)  # before the engine is prepared, which can take minutes
        engine.prepare(run_observer)
        return _run_trials(scenario_file, engine_choice, capacity_check, runs_folder, run_observer)


def check_host_capacity(scenario: Scenario, engine: TrialEngine) -> CapacityCheck:
    """Check whether this host is fast enough to run a scenario on an engine.

    The check also chooses the value of `dilation: auto`.

    Raises:
        UserError: this host can't carry the scenario.
    """
    if engine.name == "simulated":
        return make_virtual_time_check()
    plans = [make_plan(trial, "admission", engine.name, DummyAddresses()) for trial in scenario.trials()]
    return check_host_can_run(scenario, plans, find_host_capacity(engine, scenario.transport), MEASURED_COMPUTE_SPEED)


def create_runs_folder(runs_folder: Path) -> None:
    """Create the folder of all runs if it is missing, and check that files can be created in it.

    Raises:
        UserError: the folder can't be created, or is not writable.
    """
    with explain_folder_errors(runs_folder):
        runs_folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=runs_folder):
            pass


@contextmanager
def explain_folder_errors(runs_folder: Path) -> Iterator[None]:
    """Convert errors of creating a run folder, before its first trial has started.

    Raises:
        UserError: a folder or file can't be written; the message states the cause and how to continue.
    """
    try:
        yield
    except OSError as error:
        raise UserError(
            f"--runs {runs_folder}: the run folder can't be created: {error}; "
            "choose a writable folder on a disk with free space"
        ) from error


def _run_trials(
    scenario_file: ScenarioFile,
    engine_choice: EngineChoice,
    capacity_check: CapacityCheck,
    runs_folder: Path,
    run_observer: RunObserver,
) -> FinishedRun:
    engine = engine_choice.engine
    run_name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    plans = make_trial_plans(scenario_file, engine, capacity_check, run_name)
    with explain_folder_errors(runs_folder):
        folder = _create_run_folder(scenario_file, engine_choice, capacity_check, runs_folder, plans)
    run_observer.run_started(scenario_file.scenario, engine.name, engine_choice.reason, plans, folder)
    statuses: list[TrialOutcome] = []
    try:
        for k in range(len(plans)):
            plan, start_time = plans[k], time.monotonic()
            run_observer.trial_started(plan, k + 1, len(plans))
            statuses.append(_run_trial(plan, engine, folder, run_observer))
            run_observer.trial_ended(plan, statuses[-1].status, time.monotonic() - start_time)
            if kept_networks := statuses[-1].kept:  # their addresses are not free
                run_observer.engine_preparation_started(
                    f"new addresses, since the engine could not remove {', '.join(kept_networks)}; restart the engine "
                    "to free them"
                )
                plans = make_trial_plans(scenario_file, engine, capacity_check, run_name)
    except KeyboardInterrupt:
        return FinishedRun(folder, tuple(statuses), interrupted=True)
    return FinishedRun(folder, tuple(statuses), interrupted=False)


def make_trial_plans(
    scenario_file: ScenarioFile, engine: TrialEngine, capacity_check: CapacityCheck, run_name: str
) -> tuple[Plan, ...]:
    """Make one plan for each trial of a run.

    All trials use the same addresses, since they run one after the other.
    """
    trials = scenario_file.scenario.trials()
    count = max(1 + trial.strategy.training_phases().server_count + trial.scenario.cluster.workers for trial in trials)
    addressing = engine.choose_addresses(run_name, count)
    dilation, alpha_s = capacity_check.dilation, capacity_check.calibrated_alpha_s
    return tuple(
        make_plan(trial, run_name, engine.name, addressing, scenario_file.question, dilation=dilation, alpha_s=alpha_s)
        for trial in trials
    )


def _run_trial(plan: Plan, engine: TrialEngine, run_folder: Path, run_observer: RunObserver) -> TrialOutcome:
    """Run one trial in its own folder, and write its status.

    The status is written even if the trial is interrupted. Any error fails only this trial: the engine may be able to
    run the next one, and a sweep of hours must not end early.
    """
    trial_folder = run_folder / "trials" / plan.trial
    with explain_write_errors(run_folder):
        (trial_folder / "logs").mkdir(parents=True)
        (trial_folder / "plan.json").write_text(plan.model_dump_json(indent=1))
    status = TrialOutcome(trial=plan.trial, engine=engine.name, status="aborted", reason="interrupted")
    try:
        status = engine.run_trial(plan, trial_folder, run_observer)
    except Exception as error:  # noqa: BLE001 - see the docstring; the reason names the type of the error
        status = TrialOutcome(trial=plan.trial, engine=engine.name, status="failed", reason=failure_reason(error))
    finally:
        with explain_write_errors(run_folder):
            (trial_folder / "status.json").write_text(status.model_dump_json(indent=1))
    return status


@contextmanager
def explain_write_errors(run_folder: Path) -> Iterator[None]:
    """Convert errors of writing a file in the folder of a run that has started.

    Raises:
        RunFolderError: a file can't be written; the message states the cause and how to continue.
    """
    try:
        yield
    except OSError as error:
        raise RunFolderError(
            f"{run_folder}: a file of the run can't be written: {error}; "
            "make the folder writable or free disk space, then start the run again"
        ) from error


def _create_run_folder(
    scenario_file: ScenarioFile,
    engine_choice: EngineChoice,
    capacity_check: CapacityCheck,
    runs_folder: Path,
    trial_plans: tuple[Plan, ...],
) -> Path:
    """Create the run folder with scenario, manifest and plans.

    The symbolic link `latest` then points to the folder.
    """
    run_name = trial_plans[0].run
    folder = runs_folder / scenario_file.scenario.name / run_name
    folder.mkdir(parents=True)
    (folder / "scenario.yaml").write_text(scenario_file.text)
    (folder / "resolved.yaml").write_text(yaml.safe_dump(scenario_file.scenario.encode(), sort_keys=False))
    (folder / "manifest.json").write_text(
        json.dumps(_build_run_manifest(scenario_file, engine_choice, capacity_check, trial_plans), indent=1)
    )
    latest = runs_folder / "latest"
    new_link = runs_folder / f".latest-{run_name}"
    new_link.symlink_to(folder.relative_to(runs_folder))
    new_link.replace(latest)  # atomic: a concurrent reader finds either the previous run or this one
    return folder


def _build_run_manifest(
    scenario_file: ScenarioFile, choice: EngineChoice, capacity_check: CapacityCheck, trial_plans: tuple[Plan, ...]
) -> dict[str, Any]:
    """Return the manifest of a run, which is needed to repeat the run.

    It contains scenario, engine, host, commit and versions.
    """
    return {
        "schema": 1,
        "run": trial_plans[0].run,
        "scenario": scenario_file.scenario.name,
        "question": scenario_file.question,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": scenario_file.command,
        "engine": {"name": choice.engine.name, "reason": choice.reason, **choice.engine.describe_engine_versions()},
        "admission": capacity_check.model_dump(mode="json"),
        "seeds": [scenario_file.scenario.seed + repeat for repeat in range(scenario_file.scenario.repeats)],
        "trials": [plan.trial for plan in trial_plans],
        "commit": git_commit_of_checkout(),
        "host": {
            "system": platform.platform(),
            "kernel": platform.release(),
            "machine": platform.machine(),
            "processor": processor_model(),
            "cores": available_core_count(),
            "memory_bytes": host_memory_bytes(),
            "python": platform.python_version(),
        },
        "versions": {library: version(library) for library in RECORDED_LIBRARIES},
    }
