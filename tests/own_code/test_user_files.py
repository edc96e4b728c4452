"""The user's files on the host: which are copied, when they count as changed, and where their copies are used."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from user_code import OWN_MODELS

import ensayo
from compose.engines.containers.compose_file import DockerHostProperties, render_compose_document
from compose.own_code import copies, files
from compose.own_code.files import read_code_files
from compose.scenario_files.load import load_scenario
from compose.scenario_files.problems import ScenarioError
from ensayo.exit_codes import ExitCode
from services.cluster.addresses import DummyAddresses
from services.learning.own_code import OwnCodeError
from services.plan import Plan, make_plan

MODEL = {"kind": "python", "module": "code/perceptron.py:Perceptron"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a scenario and a user's model; copies go to a cache of this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "mine"
    shutil.copytree(OWN_MODELS, folder / "code", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(folder)
    write_scenario(folder, MODEL)
    return folder


def write_scenario(folder: Path, model: dict[str, Any], **keys: Any) -> Path:
    """Write the scenario `mine` with two strategies, and return its path."""
    document = {
        "name": "mine",
        "workload": {
            "dataset": {"kind": "linnerud"},
            "model": model,
            "optimiser": {"kind": "sgd", "rate": 0.05},
            "batch": 4,
            "epochs": 2,
        },
        "cluster": {"workers": 2, "worker": {"throughput": "1000/s"}},
        "strategies": {"ring": {"kind": "all_reduce"}, "server": {"kind": "parameter_server"}},
        "baseline": False,
    }
    path = folder / "mine.yaml"
    path.write_text(f"# Does my model learn?\n{yaml.safe_dump(document | keys)}")
    return path


def first_plan(path: Path, index: int = 0) -> Plan:
    return make_plan(load_scenario(path).trials()[index], "run", "docker", DummyAddresses())


def error_of(path: Path) -> str:
    """Return the key and message of the first problem of a scenario."""
    with pytest.raises(ScenarioError) as raised:
        load_scenario(path)
    return f"{raised.value.problems[0].key}: {raised.value.problems[0].message}"


def test_a_plan_states_which_code_runs(folder: Path) -> None:
    """File, digest and the folder from which nodes import; the copy has the same bytes, and is read-only."""
    record = json.loads(first_plan(folder / "mine.yaml").model_dump_json())["model"]["module"]
    copy = Path(record["folder"])

    assert record["file"] == str(folder / "code" / "perceptron.py")
    assert record["name"] == "Perceptron"
    assert copy == copies.code_copies_folder() / record["sha256"]
    for name in ("perceptron.py", "activation.py"):
        assert (copy / name).read_bytes() == (OWN_MODELS / name).read_bytes()
        assert (copy / name).stat().st_mode & 0o222 == 0


@pytest.mark.parametrize("changed", ["perceptron.py", "activation.py", "package/new.py"])
def test_every_python_file_in_the_folder_is_part_of_the_digest(folder: Path, changed: str) -> None:
    """A model imports its neighbours, so a change of any of them is another model."""
    before = first_plan(folder / "mine.yaml").sha256
    path = folder / "code" / changed
    path.parent.mkdir(exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + "\n# changed\n")

    assert first_plan(folder / "mine.yaml").sha256 != before


@pytest.mark.parametrize("ignored", [".git/hook.py", "__pycache__/x.py", "env/lib/x.py", "runs/x.py", "notes.txt"])
def test_files_that_are_no_source_code_are_left_out(folder: Path, ignored: str) -> None:
    """Virtual environments and results change without changing the model."""
    before = read_code_files("module", folder / "code")
    path = folder / "code" / ignored
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x = 1\n")
    (folder / "code/env").mkdir(exist_ok=True)
    (folder / "code/env/pyvenv.cfg").write_text("")

    assert read_code_files("module", folder / "code") == before


@pytest.mark.parametrize(("limit", "value"), [("MAX_FILES", 1), ("MAX_BYTES", 100)])
def test_a_folder_with_too_much_code_is_rejected(
    folder: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    """All files are copied into each run folder; the folder of a whole project would be too large."""
    monkeypatch.setattr(files, limit, value)

    message = error_of(folder / "mine.yaml")

    assert message.startswith("workload.model.module: code: this folder has more than ")
    assert message.endswith("put the model into a folder of its own")


def test_other_code_than_that_of_a_declared_digest_is_rejected(folder: Path) -> None:
    """The digest pins the code."""
    module = {"file": "code/perceptron.py", "name": "Perceptron", "sha256": "0" * 64}

    assert "restore the files, or remove sha256" in error_of(write_scenario(folder, MODEL | {"module": module}))


def test_a_pinned_digest_runs_the_copy_even_if_the_file_has_changed(folder: Path) -> None:
    """So the resolved scenario of an old run trains the old model."""
    plan = first_plan(folder / "mine.yaml")
    (folder / "code" / "perceptron.py").write_text("")
    module = {"file": "code/perceptron.py", "name": "Perceptron", "sha256": plan.model.module.sha256}

    assert first_plan(write_scenario(folder, MODEL | {"module": module})).model == plan.model


def test_a_damaged_copy_is_written_again(folder: Path) -> None:
    """A deleted file in the cache must not change what runs."""
    copy = Path(str(first_plan(folder / "mine.yaml").model.folders_on_nodes.code))
    (copy / "activation.py").unlink()

    assert Path(str(first_plan(folder / "mine.yaml").model.folders_on_nodes.code)) == copy
    assert (copy / "activation.py").exists()


def test_a_sweep_over_classes_is_labelled_as_the_user_has_written(folder: Path) -> None:
    """Labels name trials in reports; absolute paths and digests would hide the difference."""
    source = (folder / "code" / "perceptron.py").read_text()
    (folder / "code" / "other.py").write_text(source + "\n\nclass Other(Perceptron):\n    pass\n")
    modules = ["code/perceptron.py:Perceptron", "code/other.py:Other"]
    path = write_scenario(folder, MODEL, sweep={"workload.model.module": modules})

    trials = load_scenario(path).trials()

    assert {trial.labels["workload.model.module"] for trial in trials} == set(modules)
    assert {trial.scenario.workload.model.module.name for trial in trials} == {"Perceptron", "Other"}


def test_a_sweep_over_arguments_plans_models_of_different_sizes(folder: Path) -> None:
    """Arguments are hyperparameters like those of built-in models."""
    path = write_scenario(
        folder, MODEL | {"arguments": {"hidden": 3}}, sweep={"workload.model.arguments.hidden": [3, 5]}
    )

    assert len({first_plan(path, index).parameters for index in range(4)}) == 2


def test_all_containers_get_the_code_read_only(folder: Path) -> None:
    """Servers create the initial parameters of their shards, so they import the code, too."""
    plan = first_plan(folder / "mine.yaml", 1)
    host = DockerHostProperties(
        {"cpu": "image"}, Path("/secrets"), "10001:10001", has_gpu=False, supports_start_interval=False
    )

    services = render_compose_document(plan, host)["services"]

    copy = str(plan.model.folders_on_nodes.code)
    expected = {"type": "bind", "source": copy, "target": copy, "read_only": True, "bind": {"create_host_path": False}}
    assert {node.role for node in plan.nodes} == {"coordinator", "worker", "ps_shard"}
    assert all(expected in services[node.name]["volumes"] for node in plan.nodes)


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, which has not imported the user's code."""
    command = [sys.executable, "-m", "ensayo", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_the_run_folder_contains_the_code_and_continues_with_it(folder: Path, tmp_path: Path) -> None:
    """The record of a run is complete: neither the user's file nor the cache is needed again."""
    finished = ensayo.rehearse(folder / "mine.yaml", "simulated", tmp_path / "runs").folder
    summary = json.loads((finished / "summary.json").read_text())
    (digest,) = (path.name for path in (finished / "code").iterdir())
    for path in (max(finished.glob("trials/*/status.json")), finished / "summary.json"):
        path.unlink()
    for path in (folder / "code", tmp_path / "cache"):
        shutil.rmtree(path)

    resumed = run_cli("run", "--resume", str(finished))

    assert resumed.returncode == ExitCode.OK, resumed.stderr
    assert json.loads((finished / "summary.json").read_text()) == summary
    assert first_plan(finished / "resolved.yaml").model.module.sha256 == digest


def test_a_run_does_not_continue_without_its_code(folder: Path, tmp_path: Path) -> None:
    """Another version of the user's file would be another model."""
    finished = ensayo.rehearse(folder / "mine.yaml", "simulated", tmp_path / "runs").folder
    max(finished.glob("trials/*/status.json")).unlink()
    for path in (tmp_path / "cache", finished / "code"):
        shutil.rmtree(path)

    rejected = run_cli("run", "--resume", str(finished))

    assert rejected.returncode == ExitCode.NOT_STARTED
    assert "the model of the run is not available: " in rejected.stderr
    assert "the copy of the code in" in rejected.stderr


def test_a_report_needs_no_code(folder: Path, tmp_path: Path) -> None:
    """A run folder can be copied to another machine and reported there."""
    finished = ensayo.rehearse(folder / "mine.yaml", "simulated", tmp_path / "runs").folder
    summary = json.loads((finished / "summary.json").read_text())
    for path in (folder / "code", tmp_path / "cache", finished / "code"):
        shutil.rmtree(path)

    reported = run_cli("report", str(finished))

    assert reported.returncode == ExitCode.OK, reported.stderr
    assert json.loads((finished / "summary.json").read_text()) == summary


def test_unreadable_code_is_reported(folder: Path) -> None:
    """The operating system's reason is part of the message."""
    (folder / "code" / "broken.py").symlink_to("nothing.py")

    with pytest.raises(OwnCodeError, match=r"nothing\.py: the file can't be read: No such file or directory"):
        read_code_files("module", folder / "code")


def test_nodes_need_no_more_than_the_copy(folder: Path) -> None:
    """The user's own folder is not on the path of modules."""
    load_scenario(folder / "mine.yaml")

    assert str(folder / "code") not in sys.path
