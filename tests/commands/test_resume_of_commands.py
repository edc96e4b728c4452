"""Continuation of interrupted runs of commands."""

from pathlib import Path
from typing import Any

import pytest
from scripted_engine import RunObserverStub, ScriptedLocalEngine

from compose.commands.dry_run import measure_step_profile_on_host
from compose.engines import EngineChoice
from compose.runs.interrupted_run import read_interrupted_run
from compose.runs.run import run_scenario
from compose.runs.run_folder import ScenarioFile
from compose.scenario_files.load import load_scenario
from services.scenario.commands import step_profile
from services.schema.errors import UserError

SCENARIO: dict[str, Any] = {
    "name": "mine",
    "workload": {"kind": "command", "command": ["python", "script.py"], "folder": "code"},
    "cluster": {"workers": 2, "worker": {"memory": "512MiB"}},
    "strategies": {"script": {"kind": "command"}},
    "baseline": False,
}


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a run of a command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "code").mkdir(mode=0o755)
    (tmp_path / "code" / "script.py").write_text("print('loss=0.5')\n")
    choice = EngineChoice(ScriptedLocalEngine({}), "asked for")
    scenario_file = ScenarioFile(load_scenario(SCENARIO), "", "")
    return run_scenario(scenario_file, choice, tmp_path / "runs", RunObserverStub()).folder


def test_a_run_is_continued_with_a_dry_run_of_its_command(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a profile, its remaining trials would not be paced."""
    monkeypatch.setattr(step_profile, "_profilers", [step_profile._make_no_step_profile])

    read_interrupted_run(run_folder)

    assert step_profile._profilers == [measure_step_profile_on_host]


def test_a_run_is_not_continued_with_another_script(run_folder: Path, tmp_path: Path) -> None:
    """Half of its trials would have run another training."""
    (tmp_path / "code" / "script.py").write_text("print('loss=0.1')\n")

    with pytest.raises(UserError, match=r"have the digest .* restore the files"):
        read_interrupted_run(run_folder)
