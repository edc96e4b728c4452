"""Reading of a run that ended before its last trial, so that it can be continued."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from compose.commands.dry_run import measure_step_profile_on_host
from compose.commands.references import check_command_files
from compose.data_files.preparation import prepare_data
from compose.host.capacity_check import CapacityCheck
from compose.own_code.copies import restore_from_run_folder
from compose.runs.git_commit import git_commit_of_checkout
from compose.runs.run_folder import (
    count_disturbed_attempts,
    describe_host,
    explain_write_errors,
    installed_library_versions,
    read_outcome,
)
from compose.runs.trials.skipped_trials import SkippedTrial
from compose.scenario_files.validation_messages import explain_validation_error
from services.learning.datasets.files import install_data_preparer
from services.plan.trial_outcome import TrialOutcome
from services.scenario.commands.command_workload import CommandWorkload
from services.scenario.commands.step_profile import install_step_profiler
from services.scenario.scenario import Scenario
from services.schema.errors import UserError, os_error_cause
from services.schema.folder_links import check_has_no_outward_links

HOST_FACTS_THAT_AFFECT_TIMES = ("machine", "processor", "cores")
NO_RUN_FOLDER = "this is not a readable run folder; pass one to --resume, such as runs/latest, or start a new run"
DAMAGED_FILE_ERRORS = (  # ValidationError is a ValueError
    *(yaml.YAMLError, LookupError, TypeError, ValueError, AttributeError, RecursionError),
)
ENDED_STATUSES = ("success", "failed")  # an aborted trial was interrupted


@dataclass(frozen=True)
class InterruptedRun:
    """A run that ended before its last trial, as the files of its folder describe it."""

    folder: Path
    run_name: str  # the folder may have been renamed since
    scenario: Scenario
    question: str
    engine_name: str
    capacity_check: CapacityCheck
    trial_names: tuple[str, ...]  # in the order in which they run
    skipped_trials: tuple[SkippedTrial, ...]  # not in `trial_names`
    outcomes: Mapping[str, TrialOutcome]  # trial name -> outcome, of the trials that have ended


def read_interrupted_run(run_folder: Path) -> InterruptedRun:
    """Read the folder of a run that was interrupted, or killed, in any phase.

    Scenario, seeds, settings, engine and dilation are those with which the run was started.

    Raises:
        UserError: the folder is no run folder, the run was started on another host or with other versions, or its data
            files are missing or have changed.
    """
    run_folder = run_folder.resolve()
    check_has_no_outward_links(run_folder)
    with _explain_unreadable_files(run_folder):
        manifest = json.loads((run_folder / "manifest.json").read_text(encoding="utf-8"))
        resolved = yaml.safe_load((run_folder / "resolved.yaml").read_text(encoding="utf-8"))
        scenario = _decode_scenario(run_folder, resolved)
        run = InterruptedRun(
            folder=run_folder,
            run_name=manifest["run"],
            scenario=scenario,
            question=manifest["question"],
            engine_name=manifest["engine"]["name"],
            capacity_check=CapacityCheck.model_validate(manifest["admission"]),
            trial_names=tuple(manifest["trials"]),
            skipped_trials=tuple(map(SkippedTrial.model_validate, manifest.get("skipped", ()))),
            outcomes=_read_ended_trials(run_folder, scenario.attempts),
        )
        _check_same_host(run_folder, manifest["host"])
        _check_same_versions(run_folder, manifest["versions"])
    return run


def _decode_scenario(run_folder: Path, resolved: dict[str, Any]) -> Scenario:
    """Return the scenario of a run; its data and its code are those with which the run was started.

    Raises:
        UserError: the data are not in the cache any more, and their files are missing or have changed; or the files of
            a command have changed.
        ValidationError: the scenario is not valid.
    """
    install_data_preparer(prepare_data)
    install_step_profiler(measure_step_profile_on_host)
    restore_from_run_folder(run_folder)
    try:
        scenario = Scenario.decode(resolved)
        for trial in scenario.trials():  # a sweep may have other data, or another command
            if isinstance(trial.scenario.workload, CommandWorkload):
                check_command_files(trial.scenario.workload)
    except ValidationError as error:
        for key_path, message in explain_validation_error(error, resolved):
            if key_path[:2] == ("workload", "dataset"):
                raise UserError(
                    f"{run_folder}: the data of the run are not available: {message}; restore the file, or start a new "
                    "run"
                ) from error
            if key_path[:2] == ("workload", "model"):
                raise UserError(f"{run_folder}: the model of the run is not available: {message}") from error
        raise
    return scenario


@contextmanager
def _explain_unreadable_files(run_folder: Path) -> Iterator[None]:
    """Raise UserError if a file of the run folder can't be read, is damaged or has another format."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename}: {os_error_cause(error)}; {NO_RUN_FOLDER}") from error
    except DAMAGED_FILE_ERRORS as error:
        raise UserError(
            f"{run_folder}: manifest.json or resolved.yaml is damaged or was written by another version of Ensayo "
            f"({_first_line(error)}); the run can't be continued; start a new run"
        ) from error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _read_ended_trials(run_folder: Path, max_attempts: int) -> dict[str, TrialOutcome]:
    """Return the outcomes of the trials that have ended, by name.

    A trial whose status.json is missing or cut off has not ended, because its runner was killed. A trial that this host
    may have disturbed has not ended while attempts are left.
    """
    outcomes = (read_outcome(path) for path in sorted(run_folder.glob("trials/*/status.json")))
    return {
        outcome.trial: outcome
        for outcome in outcomes
        if outcome
        and outcome.status in ENDED_STATUSES
        and not (outcome.disturbance and count_disturbed_attempts(run_folder, outcome.trial) < max_attempts)
    }


def _check_same_host(run_folder: Path, started_on: Mapping[str, Any]) -> None:
    """Raise UserError if the run was started on another host: measured times would not be comparable."""
    this_host = describe_host()
    for fact in HOST_FACTS_THAT_AFFECT_TIMES:
        if started_on.get(fact) != this_host[fact]:
            raise UserError(
                f"{run_folder}: the run was started on a host with {fact} {started_on.get(fact)!r}; this host has "
                f"{this_host[fact]!r}, so that its times can't be compared; continue the run on the first host, or "
                "start a new run"
            )


def _check_same_versions(run_folder: Path, started_with: Mapping[str, str]) -> None:
    """Raise UserError if the run was started with other versions of Ensayo or of the libraries of its nodes."""
    installed = installed_library_versions()
    if changed := [name for name in installed if started_with.get(name) != installed[name]]:
        name = changed[0]
        raise UserError(
            f"{run_folder}: the run was started with {name} {started_with.get(name)}; installed is {installed[name]}; "
            "install the first version, or start a new run"
        )


def record_resumption(run_folder: Path, command: str) -> None:
    """Add time, command and commit of a resumption to the list `resumed` in the manifest of a run.

    Raises:
        RunFolderError: the manifest can't be written.
    """
    path = run_folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    at = datetime.now(UTC).isoformat(timespec="seconds")
    manifest.setdefault("resumed", []).append({"at": at, "command": command, "commit": git_commit_of_checkout()})
    temporary_path = path.with_suffix(".json.new")
    with explain_write_errors(run_folder):
        temporary_path.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        temporary_path.replace(path)  # atomic: without its manifest a run can't be continued


@contextmanager
def lock_run_folder(run_folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder, so that no second process continues the same run.

    The kernel releases the lock when the process ends, also if it is killed.

    Raises:
        UserError: another process holds the lock, because it runs the trials of the run, or there is no such folder.
    """
    try:
        descriptor = os.open(run_folder, os.O_RDONLY)
    except OSError as error:
        raise UserError(f"{run_folder}: {os_error_cause(error)}; {NO_RUN_FOLDER}") from error
    try:
        _acquire_lock(descriptor, run_folder)
        yield
    finally:
        os.close(descriptor)


def _acquire_lock(descriptor: int, run_folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"{run_folder}: the run is still in progress; wait for its end, or stop it first") from None
