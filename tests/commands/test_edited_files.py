"""Edits of a user's files while a run of a command is in progress."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from scripted_engine import RunObserverStub

from compose.engines import EngineChoice, create_engine
from compose.runs.run import run_scenario
from compose.runs.run_folder import ScenarioFile
from compose.scenario_files.load import load_scenario
from services.commands.working_folder import prepare_command_folder

# Edits its own original, as a user may do while the first trial runs.
SCRIPT = """
import pathlib, sys
from package import part
print("version=1", "part=" + part.VERSION, flush=True)
original = pathlib.Path(sys.argv[1])
(original / "script.py").write_text("print('version=2', flush=True)")
(original / "package" / "part.py").write_text("VERSION = '2'")
"""


def write_command(folder: Path) -> dict[str, Any]:
    """Write the script and its package, and return a scenario that repeats it."""
    folder.mkdir(mode=0o755)
    (folder / "package").mkdir(mode=0o755)
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "part.py").write_text("VERSION = '1'")
    (folder / "script.py").write_text(SCRIPT)
    workload = {"kind": "command", "command": ["python", "script.py", str(folder)], "folder": str(folder)}
    return {
        "name": "mine",
        "workload": workload | {"requires": ["json"]},  # without torch, there is no dry run
        "cluster": {"workers": 1, "worker": {"memory": "512MiB"}},
        "strategies": {"script": {"kind": "command"}},
        "repeats": 2,
        "baseline": False,
    }


def test_an_edit_during_a_run_does_not_change_its_later_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run folder and the digest of the plan have one version: all repeats must be of this one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    scenario = load_scenario(write_command(tmp_path / "mine"))

    with closing(create_engine("local")) as engine:
        choice = EngineChoice(engine, "asked for")
        run = run_scenario(ScenarioFile(scenario, "", ""), choice, tmp_path / "runs", RunObserverStub())

    outputs = [path.read_text() for path in sorted(run.folder.glob("trials/*/logs/worker-0.err"))]
    assert outputs == ["version=1 part=1\n"] * 2
    (record,) = run.folder.glob("code/*/script.py")
    assert record.read_text() == SCRIPT


def test_files_of_a_command_are_recorded_python_files_and_current_others(tmp_path: Path) -> None:
    """What a script writes beside its files must not reach the user's folder."""
    folder, record, scratch = tmp_path / "mine", tmp_path / "record", tmp_path / "scratch"
    for parent in (folder, folder / "package", folder / "data", record, record / "package", record / "gone", scratch):
        parent.mkdir()
    for path in ("train.py", "package/part.py", "gone/old.py"):
        (record / path).write_text("recorded")
    for path in ("train.py", "package/part.py", "package/table.csv", "added.py", "settings.json", "data/large.bin"):
        (folder / path).write_text("current")

    prepare_command_folder(folder, record, scratch)

    files = {str(path.relative_to(scratch)): path.read_text() for path in scratch.rglob("*") if path.is_file()}
    assert files == {
        "train.py": "recorded",
        "package/part.py": "recorded",
        "package/table.csv": "current",
        "gone/old.py": "recorded",
        "settings.json": "current",
    }
    assert (scratch / "data").is_symlink()
    (scratch / "package" / "part.py").write_text("written by the script")
    assert (folder / "package" / "part.py").read_text() == "current"
