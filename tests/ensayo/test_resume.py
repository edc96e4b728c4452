"""An interrupted run continues with its scenario and seeds; its summary equals that of an uninterrupted run."""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import ensayo
from compose.runs.interrupted_run import lock_run_folder
from ensayo.cli import main
from ensayo.exit_codes import ExitCode
from ensayo.terminal.progress_display import SilentDisplay
from services.plan import Plan
from services.scenario.scenario import Scenario

pytestmark = pytest.mark.without_nodes

SETTINGS = {"workload.epochs": 2, "repeats": 2, "seed": 7}
PHASES = ["before the first trial", "at the start of the second trial", "during training", "after the second trial"]


class InterruptingObserver(SilentDisplay):
    """Observer that interrupts a run in one phase, as Ctrl-C does."""

    def __init__(self, phase: str) -> None:
        super().__init__(Console())
        self.phase = phase
        self.trial_number = 0

    def run_started(
        self, scenario: Scenario, engine_name: str, why_this_engine: str, plans: tuple[Plan, ...], run_folder: Path
    ) -> None:
        super().run_started(scenario, engine_name, why_this_engine, plans, run_folder)

    def trial_started(self, plan: Plan, trial_number: int, trial_count: int) -> None:
        super().trial_started(plan, trial_number, trial_count)
        self.trial_number = trial_number
        self._interrupt_in("before the first trial", 1)
        self._interrupt_in("at the start of the second trial", 2)

    def coordinator_event_logged(self, plan: Plan, log_event: Mapping[str, Any]) -> None:
        super().coordinator_event_logged(plan, log_event)
        if log_event["key"] == "eval_metrics":
            self._interrupt_in("during training", 2)

    def trial_ended(self, plan: Plan, trial_status: str, wall_s: float) -> None:
        super().trial_ended(plan, trial_status, wall_s)
        self._interrupt_in("after the second trial", 2)

    def _interrupt_in(self, phase: str, trial_number: int) -> None:
        if (self.phase, self.trial_number) == (phase, trial_number):
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def uninterrupted_summary(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return summary_of(ensayo.rehearse("smoke", "simulated", tmp_path_factory.mktemp("runs"), SETTINGS).folder)


def summary_of(run_folder: Path) -> dict[str, Any]:
    """Content of summary.json without the name of the run."""
    summary: dict[str, Any] = json.loads((run_folder / "summary.json").read_text())
    del summary["run"]
    return summary


@pytest.mark.parametrize("phase", PHASES)
def test_a_resumed_run_has_the_summary_of_an_uninterrupted_run(
    tmp_path: Path, phase: str, uninterrupted_summary: dict[str, Any]
) -> None:
    interrupted = ensayo.rehearse("smoke", "simulated", tmp_path, SETTINGS, InterruptingObserver(phase))
    assert interrupted.exit_code == ExitCode.INTERRUPTED
    assert summary_of(interrupted.folder) != uninterrupted_summary
    finished_trials = {path: path.stat().st_mtime_ns for path in interrupted.folder.glob("trials/*/status.json")}

    resumed = ensayo.resume(interrupted.folder)

    assert (resumed.folder, resumed.exit_code) == (interrupted.folder.resolve(), ExitCode.OK)
    assert summary_of(resumed.folder) == uninterrupted_summary
    unchanged = [path for path, written in finished_trials.items() if path.stat().st_mtime_ns == written]
    aborted_count = phase == "during training"
    assert len(unchanged) == len(finished_trials) - aborted_count  # no trial that had ended ran again
    manifest = json.loads((resumed.folder / "manifest.json").read_text())
    assert len(manifest["resumed"]) == 1


def test_a_run_whose_process_was_killed_continues(tmp_path: Path, uninterrupted_summary: dict[str, Any]) -> None:
    """The killed process wrote no status; half a status.json counts as none."""
    settings = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "ensayo", "run", "smoke", "--engine", "simulated", "--runs", str(tmp_path)]
    with subprocess.Popen([*command, *settings], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if line.startswith("[3/"))
        process.send_signal(signal.SIGKILL)
    [manifest] = tmp_path.glob("smoke/*/manifest.json")
    last_status = max(manifest.parent.glob("trials/*/status.json"))
    last_status.write_text(last_status.read_text()[:40])

    resumed = ensayo.resume(manifest.parent)

    assert summary_of(resumed.folder) == uninterrupted_summary
    assert list((manifest.parent / "attempts").iterdir())  # what the killed process left is kept


def test_a_run_that_was_killed_before_its_report_gets_only_the_report(
    tmp_path: Path, uninterrupted_summary: dict[str, Any]
) -> None:
    finished = ensayo.rehearse("smoke", "simulated", tmp_path, SETTINGS)
    (finished.folder / "summary.json").unlink()
    written = [path.stat().st_mtime_ns for path in sorted(finished.folder.glob("trials/*/status.json"))]

    resumed = ensayo.resume(finished.folder)

    assert summary_of(resumed.folder) == uninterrupted_summary
    assert [path.stat().st_mtime_ns for path in sorted(finished.folder.glob("trials/*/status.json"))] == written


@pytest.mark.parametrize(("attempts", "is_repeated"), [(2, True), (1, False)])
def test_a_run_that_was_interrupted_before_another_attempt_makes_this_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempts: int, is_repeated: bool
) -> None:
    """A disturbed attempt is the last one only if no attempt is left."""
    settings = SETTINGS | {"attempts": attempts}
    interrupted = ensayo.rehearse("smoke", "simulated", tmp_path, settings, InterruptingObserver(PHASES[3]))
    status_path = min(interrupted.folder.glob("trials/*/status.json"))
    status_path.write_text(json.dumps(json.loads(status_path.read_text()) | {"disturbance": "the host was busy"}))

    resumed = ensayo.resume(interrupted.folder)

    disturbed_attempts = [trial["disturbed_attempts"] for trial in resumed.summary["trials"]]
    assert disturbed_attempts[0] == ["the host was busy"] * is_repeated
    assert not any(disturbed_attempts[1:])


def test_a_continued_run_makes_no_more_attempts_than_the_scenario_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disturbed attempt before the interruption is the first of two."""
    settings = SETTINGS | {"attempts": 2}
    interrupted = ensayo.rehearse("smoke", "simulated", tmp_path, settings, InterruptingObserver(PHASES[3]))
    status_path = min(interrupted.folder.glob("trials/*/status.json"))
    status_path.write_text(json.dumps(json.loads(status_path.read_text()) | {"disturbance": "the host was busy"}))
    monkeypatch.setattr("ensayo.rehearsal._find_host_disturbance", lambda _: "the host was busy")
    monkeypatch.setattr("compose.runs.trials.trial_attempts.FIRST_PAUSE_S", 1e-4)

    resumed = ensayo.resume(interrupted.folder)

    disturbed_attempts = [trial["disturbed_attempts"] for trial in resumed.summary["trials"]]
    assert disturbed_attempts[0] == ["the host was busy"]
    assert max(map(len, disturbed_attempts)) == 1


def test_a_renamed_run_folder_keeps_the_name_of_its_run(tmp_path: Path, uninterrupted_summary: dict[str, Any]) -> None:
    interrupted = ensayo.rehearse("smoke", "simulated", tmp_path, SETTINGS, InterruptingObserver(PHASES[1]))
    renamed = interrupted.folder.rename(tmp_path / "renamed")

    resumed = ensayo.resume(renamed)

    names = {json.loads(path.read_text())["run"] for path in renamed.glob("trials/*/plan.json")}
    assert names == {interrupted.folder.name}
    assert summary_of(resumed.folder)["trials"] == uninterrupted_summary["trials"]


def test_a_run_in_progress_is_not_continued_by_a_second_process(tmp_path: Path) -> None:
    interrupted = ensayo.rehearse("smoke", "simulated", tmp_path, SETTINGS, InterruptingObserver(PHASES[1]))

    with (
        lock_run_folder(interrupted.folder),
        pytest.raises(ensayo.UserError, match=r"the run is still in progress; wait for its end"),
    ):
        ensayo.resume(interrupted.folder)


@pytest.mark.parametrize(
    ("file_name", "change", "message"),
    [
        (
            "manifest.json",
            None,
            r"manifest.json: No such file or directory; this is not a readable run folder; pass one to --resume",
        ),
        ("manifest.json", ("{", "["), r"manifest.json or resolved.yaml is damaged or was written by another version"),
        ("resolved.yaml", ("workload:", "work:"), r"damaged or was written by another version of Ensayo"),
        ("manifest.json", ('"cores": ', '"cores": 10'), r"started on a host with cores 10\d+; this host has \d+"),
        ("manifest.json", ('"numpy": "', '"numpy": "0.'), r"started with numpy 0\.[\d.]+; installed is [\d.]+"),
        ("manifest.json", ("000-", "900-"), r"plans other trials than the version that started the run"),
    ],
)
def test_a_run_that_cannot_be_continued_is_left_as_it_is(
    tmp_path: Path, file_name: str, change: tuple[str, str] | None, message: str
) -> None:
    run_folder = ensayo.rehearse("smoke", "simulated", tmp_path, SETTINGS, InterruptingObserver(PHASES[1])).folder
    path = run_folder / file_name
    if change:
        path.write_text(path.read_text().replace(*change, 1))
    else:
        path.unlink()
    trials = sorted(run_folder.rglob("status.json"))

    with pytest.raises(ensayo.UserError, match=message):
        ensayo.resume(run_folder)

    assert sorted(run_folder.rglob("status.json")) == trials


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a scenario"),
        (["smoke", "--resume", "."], "SCENARIO: remove it; a resumed run keeps its scenario"),
        (["--resume", ".", "--engine", "local"], "--engine: remove it; a resumed run keeps its scenario"),
        (["--resume", ".", "--runs", "elsewhere"], "--runs: remove it; a resumed run keeps its scenario"),
        (["--resume", ".", "--set", "seed=2"], "--set: remove it; a resumed run keeps its scenario"),
        (["--resume", ".", "--attempts", "2"], "--attempts: remove it; a resumed run keeps its scenario"),
    ],
)
def test_a_resumed_run_takes_no_other_settings(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ensayo", "run", *arguments])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == ExitCode.NOT_STARTED
    assert message in capsys.readouterr().err


def test_an_interrupted_run_says_how_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "ensayo.terminal.progress_display.create_run_display", lambda quiet: InterruptingObserver(PHASES[1])
    )
    command = ["ensayo", "run", "smoke", "--engine", "simulated", "--runs", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", command)

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == ExitCode.INTERRUPTED
    assert "interrupted; continue with: ensayo run --resume " in capsys.readouterr().out
