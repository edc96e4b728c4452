"""A trial that fails, for any reason, ends itself and no other trial."""

import errno
import json
import os
import shutil
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from scripted_engine import RunObserverStub, ScriptedEngine, ScriptedNodes, run_smoke_scenario

from compose.engines.base import EnginePreparationObserver, TrialEventObserver
from compose.engines.local import NodeProcesses
from compose.engines.simulated import SimulatedEngine
from compose.runs.interrupt import raise_on_first_stop_signal
from compose.runs.run import FinishedRun
from compose.runs.run_folder import EngineLostError, RunFolderError
from compose.runs.trials.node_runner import LinkProbeFailed, TrialFailed, select_last_line
from compose.runs.trials.supervisor import TrialSupervisor
from compose.scenario_files.load import find_scenario, load_scenario
from ensayo.exit_codes import ExitCode, exit_code_of_error
from ensayo.rehearsal import write_run_report
from services.checkpoints.atomic_files import FULL_DISK_ERRORS
from services.cluster.addresses import AddressAllocator, DummyAddresses
from services.plan import Plan, make_plan
from services.plan.trial_outcome import LinkShapingRecord, TrialOutcome
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


@dataclass
class DyingNodes(ScriptedNodes):
    """Nodes of which one ends by SIGKILL before training, while links are probed, or after the run."""

    dies_in_gate: bool = False
    has_died: bool = False

    def probe_links(self) -> dict[str, LinkShapingRecord]:
        if not self.dies_in_gate:
            return {}
        self.has_died = True
        raise LinkProbeFailed("no echo from worker-1")

    def start_training(self) -> None:
        super().start_training()
        self.has_died = True

    def exit_codes(self) -> dict[str, int]:
        return super().exit_codes() | ({"worker-1": 137} if self.has_died else {})


@pytest.mark.parametrize("on_failure", ["abort", "continue", "restore"])
@pytest.mark.parametrize("dies_in_gate", [True, False])
def test_the_policy_for_lost_nodes_holds_from_the_start_of_training_to_the_end_of_the_trial(
    tmp_path: Path, on_failure: str, *, dies_in_gate: bool
) -> None:
    """Before, the killed node is the reason, not the link that its end has broken: no host has disturbed the trial."""
    document = yaml.safe_load(find_scenario("smoke").read_text()) | {
        "strategies": {"ring": {"kind": "all_reduce"}},
        "recovery": {"on_failure": on_failure, "checkpoint": {"steps": 2}},
    }
    trial = next(trial for trial in load_scenario(document).trials() if trial.scenario.cluster.workers > 1)
    plan = make_plan(trial, "test", "simulated", DummyAddresses())
    (tmp_path / "logs").mkdir()

    outcome = TrialSupervisor(
        plan, DyingNodes(plan, tmp_path, {}, dies_in_gate=dies_in_gate), tmp_path, RunObserverStub()
    ).run_trial()

    if dies_in_gate or on_failure == "abort":
        assert (outcome.status, outcome.reason) == ("failed", "worker-1 ended with exit code 137: killed by SIGKILL")
    else:
        assert (outcome.status, outcome.reason) == ("success", "")
    assert outcome.disturbance == ""


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


@pytest.mark.parametrize("caught_in", ["the engine", "the nodes"])
def test_an_interrupt_that_a_library_catches_ends_the_run_all_the_same(tmp_path: Path, caught_in: str) -> None:
    """Ctrl-C was lost without a trace when a library caught it; all later ones are ignored."""

    class InterruptedEngine(ScriptedEngine):
        def run_trial(self, plan: Plan, trial_folder: Path, observer: TrialEventObserver) -> TrialOutcome:
            if caught_in == "the engine":
                catch_interrupt()
            return super().run_trial(
                plan, trial_folder, InterruptedObserver() if caught_in == "the nodes" else observer
            )

    class InterruptedObserver:
        def coordinator_event_logged(self, plan: Plan, log_event: Mapping[str, Any]) -> None:
            catch_interrupt()

    engine = InterruptedEngine({})
    finished = run_smoke_scenario(engine, tmp_path)

    assert finished.interrupted
    assert engine.started_trials == 1


def test_an_interrupt_that_was_caught_before_a_run_ends_the_run_at_its_start(tmp_path: Path) -> None:
    """Many modules are imported before a run starts, and some of them catch every exception."""
    engine = ScriptedEngine({})

    with raise_on_first_stop_signal():
        catch_interrupt()
        with pytest.raises(KeyboardInterrupt):
            run_smoke_scenario(engine, tmp_path)

    assert engine.started_trials == 0


def test_an_interrupt_while_a_lost_node_is_started_again_leaves_no_unknown_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that its engine does not know is not stopped with the trial."""
    trial = load_scenario(find_scenario("smoke")).trials()[0]
    nodes = NodeProcesses(make_plan(trial, "test", "local", DummyAddresses()), tmp_path, tmp_path)
    (tmp_path / "logs").mkdir()
    process = SimpleNamespace()

    def start_and_interrupt(*_: Any) -> SimpleNamespace:
        signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(nodes, "_start_node_process", start_and_interrupt)

    with raise_on_first_stop_signal(), pytest.raises(KeyboardInterrupt):
        nodes.start_again("worker-0")

    assert nodes._processes == {"worker-0": process}


def catch_interrupt() -> None:
    """Interrupt this process, as Ctrl-C does, and catch the exception."""
    with suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


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


def test_a_trial_that_fails_on_a_full_disk_ends_the_run_and_runs_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node may be the first that finds no space; a trial that counts as failed would never run again."""
    full = shutil.disk_usage(tmp_path)._replace(free=4096)
    monkeypatch.setattr("compose.runs.trials.trial_attempts.shutil.disk_usage", lambda _: full)
    engine = ScriptedEngine({1: {"exit_codes": OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))}})

    with pytest.raises(RunFolderError, match=r"No space left on device; the disk of .* is full; .*ensayo run --resume"):
        run_smoke_scenario(engine, tmp_path)

    assert read_statuses(tmp_path) == ["success", "aborted"]


@pytest.mark.parametrize("number", FULL_DISK_ERRORS)
def test_a_checkpoint_that_does_not_fit_on_the_disk_ends_the_run_and_its_trial_runs_again_later(
    tmp_path: Path, number: int
) -> None:
    """The part of the file that was written is removed, so the disk has space for small files again."""
    reason = f"worker-0.ckpt can't be written: {os.strerror(number)}; the file needs 500,000,000 bytes"
    engine = ScriptedEngine({1: {"exit_codes": TrialFailed(reason)}})

    with pytest.raises(RunFolderError, match=r"bytes; the disk of .* is full; .*ensayo run --resume"):
        run_smoke_scenario(
            engine, tmp_path, strategies="{ring: {kind: all_reduce}}", recovery="{checkpoint: {steps: 2}}"
        )

    assert read_statuses(tmp_path) == ["success", "aborted"]


def test_an_engine_that_is_gone_ends_the_run_and_the_rest_can_be_continued(tmp_path: Path) -> None:
    """All further trials would fail within a second, and a trial that counts as failed would never run again."""

    class VanishingEngine(ScriptedEngine):
        def missing_software(self) -> str | None:
            return "the Docker daemon does not answer" if self.started_trials == 2 else None

    engine = VanishingEngine({1: {"exit_codes": TrialFailed("connection refused")}})

    with pytest.raises(
        EngineLostError, match=r"connection refused; the Docker daemon does not answer; start .*ensayo run --resume"
    ) as raised:
        run_smoke_scenario(engine, tmp_path)

    assert exit_code_of_error(raised.value) == ExitCode.FAILED
    assert read_statuses(tmp_path) == ["success", "aborted"]


def read_statuses(runs_folder: Path) -> list[str]:
    paths = sorted(runs_folder.glob("smoke/*/trials/*/status.json"))
    return [json.loads(path.read_text())["status"] for path in paths]


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
