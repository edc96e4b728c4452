"""Runs on a file of the user, from `validate` to the report."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from data_files import SMALL_FILES, scenario_of
from own_datasets import OWN_DATA

import ensayo
from ensayo.exit_codes import ExitCode


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a scenario and a csv file; prepared data go to a cache of this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "mine"
    folder.mkdir()
    document = scenario_of(SMALL_FILES["csv"](folder).keys, baseline=True)
    (folder / "mine.yaml").write_text(f"# Does it work with my data?\n{yaml.safe_dump(document)}")
    return folder


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, without what this process has in memory."""
    command = [sys.executable, "-m", "ensayo", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ)


def summary_of(run_folder: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((run_folder / "summary.json").read_text())
    return summary


@pytest.mark.slow_where(engine=["local"])
@pytest.mark.parametrize("engine", ["simulated", "local"])
def test_a_run_is_reported_on_another_machine(folder: Path, tmp_path: Path, engine: str) -> None:
    """A run folder has no references to the file, nor to the prepared data."""
    result = ensayo.rehearse(folder / "mine.yaml", engine, tmp_path / "runs")
    summary = summary_of(result.folder)
    elsewhere = tmp_path / "elsewhere" / result.folder.name
    elsewhere.parent.mkdir()
    result.folder.rename(elsewhere)
    for path in (folder, tmp_path / "cache", tmp_path / "runs"):
        shutil.rmtree(path)

    reported = run_cli("report", str(elsewhere))

    assert result.exit_code == ExitCode.OK or engine == "local"  # on a busy host, workers miss deadlines
    assert [trial["status"] for trial in summary["trials"]] == ["success", "success"]
    assert reported.returncode == 0, reported.stderr
    assert summary_of(elsewhere) == summary


def test_validate_checks_the_file(folder: Path) -> None:
    """Errors show file, line and column."""
    correct = run_cli("validate", str(folder / "mine.yaml"))
    table = folder / "table.csv"
    table.write_text(table.read_text().replace("rooms,", "rooms,", 1) + "1,2,three,4\n")

    wrong = run_cli("validate", str(folder / "mine.yaml"))

    assert correct.stdout == "mine: 2 trials\n"
    assert wrong.returncode == ExitCode.NOT_STARTED
    assert "table.csv:52: column age: 'three' is not a finite number" in wrong.stderr


def test_a_run_continues_without_the_file_but_not_without_its_data(folder: Path, tmp_path: Path) -> None:
    """The prepared data are found by the digest that the run folder has."""
    finished = ensayo.rehearse(folder / "mine.yaml", "simulated", tmp_path / "runs").folder
    summary = summary_of(finished)
    for path in (max(finished.glob("trials/*/status.json")), finished / "summary.json"):
        path.unlink()
    interrupted = tmp_path / "interrupted"
    shutil.copytree(finished, interrupted)
    shutil.rmtree(folder)

    resumed = run_cli("run", "--resume", str(finished))
    shutil.rmtree(tmp_path / "cache")
    rejected = run_cli("run", "--resume", str(interrupted))

    assert resumed.returncode == 0, resumed.stderr
    assert summary_of(finished) == summary
    assert rejected.returncode == ExitCode.NOT_STARTED
    assert "the data of the run are not available: " in rejected.stderr
    assert "table.csv: file not found; restore the file, or start a new run" in rejected.stderr


def test_a_changed_file_does_not_continue_a_run(folder: Path, tmp_path: Path) -> None:
    """Trials of one run must have the same data."""
    finished = ensayo.rehearse(folder / "mine.yaml", "simulated", tmp_path / "runs").folder
    max(finished.glob("trials/*/status.json")).unlink()
    table = folder / "table.csv"
    table.write_text(table.read_text() + "1,2,3,4\n")
    shutil.rmtree(tmp_path / "cache")

    rejected = run_cli("run", "--resume", str(finished))

    assert rejected.returncode == ExitCode.NOT_STARTED
    assert "table.csv: the file has changed since the scenario was loaded" in rejected.stderr


def test_the_run_folder_records_path_digest_and_sizes(folder: Path, tmp_path: Path) -> None:
    """A result can be traced to its data."""
    run_folder = ensayo.rehearse(folder / "mine.yaml", "simulated", tmp_path / "runs").folder
    resolved = yaml.safe_load((run_folder / "resolved.yaml").read_text())
    plan = json.loads(next(run_folder.glob("trials/*/plan.json")).read_text())

    file = resolved["workload"]["dataset"]["path"]
    assert file["file"] == str(folder / "table.csv")
    assert len(file["sha256"]) == 64
    assert plan["dataset"]["source"]["path"] == file
    assert plan["dataset"]["arrays"]["train_samples"] == plan["train_samples"] == 40
    assert plan["dataset"]["arrays"]["test_samples"] == plan["eval_samples"] == 10


@pytest.mark.slow_where(engine=["local"])
@pytest.mark.parametrize("engine", ["simulated", "local"])
def test_data_of_users_code_are_recorded_and_found_again(tmp_path: Path, folder: Path, engine: str) -> None:
    """The run folder has the code; a run continues without the user's file, also if the cache was emptied."""
    shutil.copytree(OWN_DATA, folder / "code")
    keys = {"kind": "python", "module": "code/functions.py:load_classes"}
    (folder / "mine.yaml").write_text(yaml.safe_dump(scenario_of(keys, baseline=True)))
    finished = ensayo.rehearse(folder / "mine.yaml", engine, tmp_path / "runs").folder
    summary = summary_of(finished)
    (code_folder,) = (finished / "code").iterdir()
    for path in (max(finished.glob("trials/*/status.json")), finished / "summary.json"):
        path.unlink()
    for path in (folder, tmp_path / "cache"):
        shutil.rmtree(path)

    resumed = run_cli("run", "--resume", str(finished))

    assert resumed.returncode == 0 or engine == "local", resumed.stderr
    assert (code_folder / "functions.py").read_bytes() == (OWN_DATA / "functions.py").read_bytes()
    assert [trial["status"] for trial in summary_of(finished)["trials"]] == ["success", "success"]
    if engine == "simulated":
        assert summary_of(finished) == summary
