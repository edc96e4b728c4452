"""Folder of a run: its creation and its manifest, and messages about files that can't be written."""

import json
import platform
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import yaml
from pydantic import ValidationError

from compose.engines import EngineChoice
from compose.host.capacity_check import CapacityCheck
from compose.host.host_facts import available_core_count, host_memory_bytes, processor_model
from compose.own_code.copies import copy_to_run_folder
from compose.runs.git_commit import git_commit_of_checkout
from compose.runs.trials.skipped_trials import SkippedTrial
from services.plan import Plan
from services.plan.trial_outcome import TrialOutcome
from services.scenario.scenario import Scenario
from services.schema.errors import EnsayoError, UserError, os_error_cause

RECORDED_LIBRARIES = ("ensayo", "numpy", "grpcio", "protobuf", "pydantic", "cryptography")


ATTEMPTS_FOLDER = "attempts"  # has a folder <trial>-<number> for each repeated or interrupted attempt at a trial


class RunFolderError(EnsayoError):
    """Error because the files of a run that has started can't be written, for example on a full disk."""


class EngineLostError(EnsayoError):
    """Error because the engine does not answer any more, so that a run that has started can't go on."""


@dataclass(frozen=True)
class ScenarioFile:
    """A scenario, the text of its file, and the command that started the run."""

    scenario: Scenario
    text: str  # text of the scenario file
    question: str  # first comment of the file
    command: str = ""  # command line, for the manifest


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
            f"--runs {runs_folder}: the run folder can't be created: {os_error_cause(error)}; "
            "choose a writable folder on a disk with free space"
        ) from error


def read_run_name(run_folder: Path) -> str:
    """Return the name of the run in a folder, which may have been renamed since.

    Raises:
        UserError: the folder is no run folder.
    """
    try:
        manifest = json.loads((run_folder / "manifest.json").read_text(encoding="utf-8"))
        return str(manifest["run"])
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise UserError(
            f"{run_folder}: no run folder with a readable manifest.json; write the folder of a run, such as "
            "runs/latest; without a folder, ensayo clean also ends all runs in progress"
        ) from error


def read_outcome(status_path: Path) -> TrialOutcome | None:
    """Return the outcome of an attempt; None if its file is missing or cut off, because the runner was killed."""
    try:
        return TrialOutcome.model_validate_json(status_path.read_bytes())
    except (OSError, ValidationError):
        return None


def count_disturbed_attempts(run_folder: Path, trial: str) -> int:
    """Return the number of attempts at a trial that this host may have disturbed; interrupted attempts do not count."""
    earlier_paths = run_folder.glob(f"{ATTEMPTS_FOLDER}/{trial}-*/status.json")
    outcomes = map(read_outcome, (*earlier_paths, run_folder / "trials" / trial / "status.json"))
    return sum(outcome is not None and bool(outcome.disturbance) for outcome in outcomes)


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
            f"{run_folder}: a file of the run can't be written: {os_error_cause(error)}; make the folder writable or "
            f"free disk space, then {how_to_continue(run_folder)}"
        ) from error


def how_to_continue(run_folder: Path) -> str:
    """Return how a run that has ended early is continued, as the end of an error's text."""
    return f"continue the run with: ensayo run --resume {shlex.quote(str(run_folder))}"


def create_run_folder(
    scenario_file: ScenarioFile,
    engine_choice: EngineChoice,
    capacity_check: CapacityCheck,
    runs_folder: Path,
    trial_plans: tuple[Plan, ...],
    skipped_trials: tuple[SkippedTrial, ...] = (),
) -> Path:
    """Create the run folder with scenario, manifest and plans.

    The symbolic link `latest` then points to the folder.
    """
    run_name = trial_plans[0].run
    folder = runs_folder / scenario_file.scenario.name / run_name
    folder.mkdir(parents=True)
    (folder / "scenario.yaml").write_text(scenario_file.text)
    (folder / "resolved.yaml").write_text(yaml.safe_dump(scenario_file.scenario.encode(), sort_keys=False))
    for plan in trial_plans:
        for code_folder in plan.code_folders:
            copy_to_run_folder(code_folder, folder)
    (folder / "manifest.json").write_text(
        json.dumps(
            _build_run_manifest(scenario_file, engine_choice, capacity_check, trial_plans)
            | {"skipped": [skipped.model_dump(mode="json") for skipped in skipped_trials]},
            indent=1,
        )
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
        "host": describe_host(),
        "versions": installed_library_versions(),
    }


def installed_library_versions() -> dict[str, str]:
    """Return the versions of Ensayo and of the libraries that nodes use, as a run's manifest records them."""
    return {library: version(library) for library in RECORDED_LIBRARIES}


def describe_host() -> dict[str, Any]:
    """Return the facts about this host that a run's manifest records."""
    return {
        "system": platform.platform(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "processor": processor_model(),
        "cores": available_core_count(),
        "memory_bytes": host_memory_bytes(),
        "python": platform.python_version(),
    }
