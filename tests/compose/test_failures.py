"""A trial that fails, for any reason, ends itself and no other trial."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from scripted_engine import ScriptedEngine, run_smoke_scenario

from compose.engines.base import EnginePreparationObserver, TrialEventObserver
from compose.engines.simulated import SimulatedEngine
from compose.runs.run import FinishedRun
from compose.runs.run_folder import RunFolderError
from compose.runs.trials.node_runner import TrialFailed, select_last_line
from ensayo.exit_codes import ExitCode, exit_code_of_error
from ensayo.rehearsal import write_run_report
from services.cluster.addresses import AddressAllocator
from services.plan import Plan
from services.plan.trial_outcome import TrialOutcome
from services.schema.errors import HostError, UserError


@pytest.mark.parametrize("call", ["start", "shape", "start_training", "exit_codes", "stop", "run"])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TrialFailed("no answer"), "no answer"),
        (TimeoutError("late"), "TimeoutError: late"),
        (HostError("docker build failed"), "HostError: docker build failed"),
    ],
)
def test_a_failed_trial_is_reported_and_the_other_trials_run(
    tmp_path: Path, call: str, error: Exception, reason: str
) -> None:
    """The results of a sweep of hours are worth keeping, whatever error one of its trials ran into."""
    finished = run_smoke_scenario(ScriptedEngine({1: {call: error}}), tmp_path)

    assert not finished.interrupted
    assert len(finished.statuses) > 2
    assert [status.status for status in finished.statuses].count("failed") == 1
    assert (finished.statuses[1].status, finished.statuses[1].reason) == ("failed", reason)
    written_outcomes = [json.loads(file.read_text()) for file in sorted(finished.folder.glob("trials/*/status.json"))]
    assert [outcome["status"] for outcome in written_outcomes] == [status.status for status in finished.statuses]


def test_a_failed_removal_is_reported_after_the_reason_of_the_failure(tmp_path: Path) -> None:
    """The failure of the removal must not hide why the trial failed."""
    finished = run_smoke_scenario(
        ScriptedEngine({0: {"start_training": TrialFailed("no gate"), "stop": OSError("no space")}}), tmp_path
    )

    assert finished.statuses[0].reason == "no gate; OSError: no space"


def test_only_an_interrupt_ends_a_run(tmp_path: Path) -> None:
    """The interrupted trial is recorded as aborted."""

    class InterruptedEngine(ScriptedEngine):
        def run_trial(self, plan: Plan, trial_folder: Path, observer: TrialEventObserver) -> TrialOutcome:
            if self.started_trials == 1:
                raise KeyboardInterrupt
            return super().run_trial(plan, trial_folder, observer)

    finished = run_smoke_scenario(InterruptedEngine({}), tmp_path)

    assert finished.interrupted
    last_outcome = json.loads(max(finished.folder.glob("trials/*/status.json")).read_text())
    assert (last_outcome["status"], last_outcome["reason"]) == ("aborted", "interrupted")
    planned_trials = json.loads((finished.folder / "manifest.json").read_text())["trials"]
    assert planned_trials[:2] == sorted(trial.name for trial in finished.folder.glob("trials/*"))
    assert len(planned_trials) > 2  # the trials that did not start are recorded as well


def test_a_network_that_cannot_be_removed_costs_its_addresses_and_no_trial(tmp_path: Path) -> None:
    """Docker may count endpoints of a network that has none, and refuse to remove it until Docker is restarted."""

    class NetworkKeepingEngine(ScriptedEngine):
        address_requests = 0

        def choose_addresses(self, run_name: str, node_count: int) -> AddressAllocator:
            self.address_requests += 1
            return super().choose_addresses(run_name, node_count)

        def run_trial(self, plan: Plan, trial_folder: Path, observer: TrialEventObserver) -> TrialOutcome:
            kept_networks = ("network of the first",) if self.started_trials == 0 else ()
            return super().run_trial(plan, trial_folder, observer).model_copy(update={"kept": kept_networks})

    engine = NetworkKeepingEngine({})
    finished = run_smoke_scenario(engine, tmp_path)

    assert {status.status for status in finished.statuses} == {"success"}
    assert engine.address_requests == 2  # for the run, and again for its remaining trials
    first_outcome = json.loads(min(finished.folder.glob("trials/*/status.json")).read_text())
    assert first_outcome["kept"] == ["network of the first"]


def test_a_simulator_process_that_died_is_started_again(tmp_path: Path) -> None:
    """At most the trial that was running fails."""
    finished = run_smoke_scenario(SimulatedEngine(), tmp_path)

    assert all(status.status == "success" for status in (finished.statuses[0], *finished.statuses[2:]))


def test_latest_points_to_the_run_that_started_last(tmp_path: Path) -> None:
    """The folder contains no other entries."""
    run_smoke_scenario(ScriptedEngine({}), tmp_path)
    finished = run_smoke_scenario(ScriptedEngine({}), tmp_path)

    assert (tmp_path / "latest").resolve() == finished.folder.resolve()
    assert {entry.name for entry in tmp_path.iterdir()} == {"latest", "smoke"}


class EngineThatMustNotBePrepared(ScriptedEngine):
    """Engine of a run that must end before the engine is prepared."""

    def prepare(self, preparation_observer: EnginePreparationObserver) -> None:
        raise AssertionError


def fail_writes_of(file_name: str, error_number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every attempt to write a file with this name fail; tests run as root, for whom no folder is read-only."""
    write_text = Path.write_text

    def write_or_fail(path: Path, *arguments: Any, **options: Any) -> int:
        if path.name == file_name:
            raise OSError(error_number, os.strerror(error_number), str(path))
        return write_text(path, *arguments, **options)

    monkeypatch.setattr(Path, "write_text", write_or_fail)


def test_a_read_only_folder_of_runs_is_reported_before_the_engine_is_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Preparing an engine can take minutes, for a run that cannot be written."""

    def fail_on_read_only_disk(**_: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path))

    monkeypatch.setattr("compose.runs.run_folder.TemporaryFile", fail_on_read_only_disk)

    with pytest.raises(UserError, match=rf"--runs {tmp_path}: .*Read-only file system.*choose a writable folder"):
        run_smoke_scenario(EngineThatMustNotBePrepared({}), tmp_path)


def test_a_disk_that_is_full_before_the_first_trial_is_an_error_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was started; another folder solves the problem."""
    fail_writes_of("manifest.json", errno.ENOSPC, monkeypatch)
    engine = ScriptedEngine({})

    with pytest.raises(UserError, match=rf"--runs {tmp_path}: .*No space left on device.*choose a writable folder"):
        run_smoke_scenario(engine, tmp_path)

    assert engine.started_trials == 0


@pytest.mark.parametrize("file_name", ["plan.json", "status.json"])
def test_a_disk_that_is_full_during_a_run_ends_the_run_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_name: str
) -> None:
    """All further trials would fail too; the exit code is that of a failed trial."""
    fail_writes_of(file_name, errno.ENOSPC, monkeypatch)
    engine = ScriptedEngine({})

    with pytest.raises(
        RunFolderError, match=r"can't be written: No space left on device; make the folder .*free disk space"
    ) as raised:
        run_smoke_scenario(engine, tmp_path)

    assert exit_code_of_error(raised.value) == ExitCode.FAILED
    assert engine.started_trials <= 1


def test_a_disk_that_is_full_for_the_report_leaves_a_run_that_can_be_reported_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All trials have run; only the report is missing."""

    def fail_on_full_disk(_: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("analysis.report.report.write_report", fail_on_full_disk)

    with pytest.raises(RunFolderError, match=rf"No space left on device.*then run: ensayo report {tmp_path}$"):
        write_run_report(FinishedRun(tmp_path, (), interrupted=False))


def test_the_reason_of_a_failure_is_no_line_of_grpc() -> None:
    """gRPC may log the end of a connection after the error of the node, and the reader needs the error."""
    grpc_line = "I1127 01:15:27.919281   17924 chttp2_transport.cc:1403] ipv4:127.0.0.1:57313: Got goaway [2]"

    assert select_last_line(f"a warning\nDeadlineExceeded: no message\n{grpc_line}\n") == "DeadlineExceeded: no message"
    assert select_last_line(f"{grpc_line}\n") == grpc_line
    assert select_last_line("") == ""
