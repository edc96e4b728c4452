"""Report, summary, data frame and command line list the attempts at each trial that this host disturbed."""

import json
import sys
from pathlib import Path

import pytest

import ensayo
from compose.runs.trials import trial_attempts
from ensayo import rehearsal
from ensayo.cli import main
from ensayo.exit_codes import ExitCode

pytestmark = pytest.mark.without_nodes

SMOKE = ["--engine", "simulated", "--set", "workload.epochs=1"]
DISTURBANCE = "9.0% of the deadlines were missed"


@pytest.fixture
def disturbed_trials(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Disturb the first two attempts at the second trial; return the names of all trials that ran."""
    seen: list[str] = []

    def find_host_disturbance(trial_folder: Path) -> str:
        seen.append(trial_folder.name)
        return DISTURBANCE if len(seen) in (2, 3) else ""

    monkeypatch.setattr(rehearsal, "_find_host_disturbance", find_host_disturbance)
    monkeypatch.setattr(trial_attempts, "FIRST_PAUSE_S", 1e-4)
    return seen


def test_all_attempts_are_listed_with_their_reasons(tmp_path: Path, disturbed_trials: list[str]) -> None:
    result = ensayo.rehearse("smoke", "simulated", tmp_path, {"workload.epochs": 1})

    trial = disturbed_trials[1]
    attempts = f"2 earlier attempts ({DISTURBANCE}; {DISTURBANCE})"
    assert result.repeated_trials == (f"{trial}: this host may have disturbed {attempts}; the last attempt counts",)
    assert (result.exit_code, result.reasons) == (ExitCode.OK, ())
    summary = json.loads((result.folder / "summary.json").read_text())
    assert {each["id"]: each["disturbed_attempts"] for each in summary["trials"]}[trial] == [DISTURBANCE, DISTURBANCE]
    assert list(result.trials["disturbed_attempts"]) == [0, 2, 0]
    page = (result.folder / "report.html").read_text()
    assert f"{trial}: this host may have disturbed 2 earlier attempts" in page
    assert (result.folder / "attempts" / f"{trial}-2" / "logs" / "coordinator.log").is_file()


def test_a_report_without_repeated_trials_does_not_mention_them(tmp_path: Path) -> None:
    result = ensayo.rehearse("smoke", "simulated", tmp_path, {"workload.epochs": 1})

    assert result.repeated_trials == ()
    assert "Repeated trials" not in (result.folder / "report.html").read_text()


def test_the_command_line_prints_them_and_limits_the_attempts(
    tmp_path: Path, disturbed_trials: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["ensayo", "run", "smoke", *SMOKE, "--runs", str(tmp_path), "--attempts", "2"]
    monkeypatch.setattr(sys, "argv", command)

    with pytest.raises(SystemExit) as ended:
        main()

    lines = capsys.readouterr().out.splitlines()
    assert ended.value.code == ExitCode.OK
    assert len(disturbed_trials) == 4  # of three trials, the second was repeated once
    repeated = f"this host may have disturbed 1 earlier attempt ({DISTURBANCE}); the last attempt counts"
    assert f"  {disturbed_trials[1]}: {repeated}" in lines
    assert any(line.endswith("attempt 2 of 2 follows after 0.0001 s") for line in lines)
