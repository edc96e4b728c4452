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

from compose.host.capacity_check import CapacityCheck
from compose.runs.run_folder import describe_host, explain_write_errors
from services.plan.trial_outcome import TrialOutcome
from services.scenario.scenario import Scenario
from services.schema.errors import UserError, os_error_cause

HOST_FACTS_THAT_AFFECT_TIMES = ("machine", "processor", "cores")
ENDED_STATUSES = ("success", "failed")  # an aborted trial was interrupted


@dataclass(frozen=True)
class InterruptedRun:
    """A run that ended before its last trial, as the files of its folder describe it."""

    folder: Path
    scenario: Scenario
    question: str
    engine_name: str
    capacity_check: CapacityCheck
    trial_names: tuple[str, ...]  # in the order in which they run
    outcomes: Mapping[str, TrialOutcome]  # trial name -> outcome, of the trials that have ended


def read_interrupted_run(run_folder: Path) -> InterruptedRun:
    """Read the folder of a run that was interrupted, or killed, in any phase.

    Scenario, seeds, settings, engine and dilation are those with which the run was started.

    Raises:
        UserError: the folder is no run folder, was written by another version, or the run was started on another host.
    """
    run_folder = run_folder.resolve()
    try:
        manifest = json.loads((run_folder / "manifest.json").read_text(encoding="utf-8"))
        resolved = yaml.safe_load((run_folder / "resolved.yaml").read_text(encoding="utf-8"))
        run = InterruptedRun(
            folder=run_folder,
            scenario=Scenario.decode(resolved),
            question=manifest["question"],
            engine_name=manifest["engine"]["name"],
            capacity_check=CapacityCheck.model_validate(manifest["admission"]),
            trial_names=tuple(manifest["trials"]),
            outcomes=_read_ended_trials(run_folder),
        )
        started_on = manifest["host"]
    except OSError as error:
        raise UserError(
            f"{error.filename}: {os_error_cause(error)}; the run can't be continued, start it again"
        ) from error
    except (KeyError, TypeError, ValueError, yaml.YAMLError) as error:  # ValidationError is a ValueError
        raise UserError(
            f"{run_folder}: manifest.json or resolved.yaml is damaged or was written by another version of Ensayo "
            f"({_first_line(error)}); the run can't be continued, start it again"
        ) from error
    _check_same_host(run_folder, started_on)
    return run


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _read_ended_trials(run_folder: Path) -> dict[str, TrialOutcome]:
    """Return the outcomes of the trials that have ended, by name.

    A trial whose status.json is missing or cut off has not ended: its runner was killed.
    """
    outcomes = (_read_outcome(path) for path in sorted(run_folder.glob("trials/*/status.json")))
    return {outcome.trial: outcome for outcome in outcomes if outcome and outcome.status in ENDED_STATUSES}


def _read_outcome(status_path: Path) -> TrialOutcome | None:
    try:
        return TrialOutcome.model_validate_json(status_path.read_bytes())
    except ValidationError:
        return None


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


def record_resumption(run_folder: Path, command: str) -> None:
    """Add the time and the command of a resumption to the list `resumed` in the manifest of a run.

    Raises:
        RunFolderError: the manifest can't be written.
    """
    path = run_folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest.setdefault("resumed", []).append(
        {"at": datetime.now(UTC).isoformat(timespec="seconds"), "command": command}
    )
    temporary_path = path.with_suffix(".json.new")
    with explain_write_errors(run_folder):
        temporary_path.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        temporary_path.replace(path)  # atomic: without its manifest a run can't be continued


@contextmanager
def lock_run_folder(run_folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder, so that no second process continues the same run.

    The kernel releases the lock when the process ends, also if it is killed.

    Raises:
        UserError: another process holds the lock, because it runs the trials of the run.
    """
    descriptor = os.open(run_folder, os.O_RDONLY)
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
