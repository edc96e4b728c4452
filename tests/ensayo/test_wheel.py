"""The wheel of Ensayo, installed in an environment of its own and used in an empty folder."""

import json
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from compose.engines.containers.engine import DockerEngine
from compose.scenario_files.json_schema import scenario_schema
from compose.scenario_files.load import shipped_scenario_paths

pytestmark = pytest.mark.slow  # pip builds the wheel

RunEnsayo: TypeAlias = Callable[..., str]
SHORT = ("--set", "workload.epochs=1", "--attempts", "1")
RUN_HAS_VERDICT = (0, 3)  # exit codes; a busy host may miss deadlines


@pytest.fixture(scope="module")
def installed(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with the wheel, and the dependencies of the environment that runs the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, pytestconfig.rootpath], check=True)
    venv.create(folder / "environment")
    python = folder / "environment" / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "--python", python, "install", "--no-deps", "--no-index", wheel], check=True)
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    # The .pth files of the test environment are not read, so this does not find the checkout.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python.parents[1]


@pytest.fixture
def ensayo(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunEnsayo:
    """Return a function that runs the installed program in an empty folder, and returns what it prints."""
    monkeypatch.delenv("PYTHONPATH", raising=False)

    def run(*arguments: str, exit_codes: tuple[int, ...] = (0,)) -> str:
        command = [installed / "bin" / "ensayo", *arguments]
        completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert completed.returncode in exit_codes, completed.stdout + completed.stderr
        return completed.stdout

    return run


def test_packages_are_those_of_the_wheel(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other tests of this file would show nothing if the programs imported the checkout."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    script = "import analysis, compose, ensayo, services; print(analysis, compose, ensayo, services)"
    command = [installed / "bin" / "python", "-c", script]

    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert printed.count(str(installed)) == 4


def test_commands_that_run_nothing_find_their_files(ensayo: RunEnsayo) -> None:
    """Scenarios, the schema and the published results come with the wheel."""
    counted = ensayo("validate").splitlines()

    assert [line.partition(":")[0] for line in counted] == [path.stem for path in shipped_scenario_paths()]
    assert json.loads(ensayo("schema")) == scenario_schema()
    assert "Which strategy" in ensayo("list")
    assert "ps_bsp" in ensayo("plan", "quickstart", "--engine", "simulated")
    assert "python" in ensayo("doctor")


def test_stored_weights_come_with_the_wheel(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node image is built from the package `services` of the wheel."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    script = "from services.learning.models.llama_mini import read_base_arrays; print(len(read_base_arrays()))"
    command = [installed / "bin" / "python", "-c", script]

    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert printed == "21\n"


def test_study_of_published_results_is_written(ensayo: RunEnsayo, tmp_path: Path) -> None:
    """The results are data of a package."""
    ensayo("mlperf")

    assert list((tmp_path / "runs" / "mlperf").glob("*.html"))


def test_run_in_virtual_time_and_its_report(ensayo: RunEnsayo, tmp_path: Path) -> None:
    """This is what a new user does first; the run folder is in the current folder."""
    assert "valid: runs/quickstart/" in ensayo("run", "quickstart", "--engine", "simulated")

    report = tmp_path / "runs" / "latest" / "report.html"
    report.unlink()
    assert ensayo("report", "runs/latest").splitlines() == ["runs/latest/report.html"]
    assert report.is_file()


def test_run_in_processes(ensayo: RunEnsayo, tmp_path: Path) -> None:
    """Nodes are processes of the interpreter that runs the wheel, whatever the current folder contains."""
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "__init__.py").write_text("raise ImportError('not the package of Ensayo')")

    ensayo("run", "smoke", "--engine", "local", *SHORT, exit_codes=RUN_HAS_VERDICT)

    assert len(list(tmp_path.glob("runs/latest/trials/*/status.json"))) == 3


@pytest.mark.docker
def test_run_in_containers_needs_no_checkout(
    ensayo: RunEnsayo, docker_engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheel contains what the node image is built from: the image has the hash of the checkout's image."""
    ensayo("run", "smoke", "--engine", "docker", *SHORT, exit_codes=RUN_HAS_VERDICT)

    manifest = json.loads((tmp_path / "runs" / "latest" / "manifest.json").read_text())
    assert docker_engine.images["cpu"] in manifest["engine"]["images"]
    assert manifest["commit"] == {}
