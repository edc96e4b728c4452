"""Commands whose interpreter lacks a package: the run is rejected, or the trials are skipped."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_plans import plan_command
from scripted_engine import RunObserverStub, ScriptedEngine, ScriptedLocalEngine
from typer.testing import CliRunner

from analysis.reading.run_folder import RunFolder
from analysis.report.summary_text import summary_sentences
from analysis.results.analyse_run import analyse_run
from compose.commands.interpreter import describe_interpreter
from compose.commands.limits import check_commands
from compose.engines import EngineChoice
from compose.runs.interrupted_run import read_interrupted_run
from compose.runs.run import FinishedRun, run_scenario
from compose.runs.run_folder import ScenarioFile
from compose.scenario_files.load import load_scenario
from compose.scenario_files.problems import ScenarioError
from ensayo import cli
from services.scenario.scenario import Scenario
from services.schema.errors import UserError

REASON = (
    f"no_such_package is not installed for {sys.executable}; install the packages that contain no_such_package there, "
    "or set workload.python or workload.requirements"
)
COMMAND: dict[str, Any] = {"kind": "command", "command": ["python", "script.py"], "folder": "code"}


class PrintingObserver(RunObserverStub):
    """Observer that keeps the texts that a terminal would show."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def engine_preparation_started(self, description: str) -> None:
        self.texts.append(description)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder of its own, with the folder of a command and an own cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "code").mkdir(mode=0o755)
    (tmp_path / "code" / "script.py").write_text("print('loss=0.5')\n")


def declare(missing_packages: str, **cases: list[str]) -> Scenario:
    """Return a scenario with a case for each list of required modules."""
    return load_scenario(
        {
            "name": "frameworks",
            "workload": COMMAND,
            "cluster": {"workers": 2, "worker": {"memory": "512MiB"}},
            "strategies": {"script": {"kind": "command"}},
            "sweep": {
                "framework": {
                    "cases": {name: {"workload": COMMAND | {"requires": modules}} for name, modules in cases.items()}
                }
            },
            "baseline": False,
            "missing_packages": missing_packages,
        }
    )


def run(scenario: Scenario, runs: Path, observer: RunObserverStub | None = None) -> FinishedRun:
    choice = EngineChoice(ScriptedLocalEngine({}), "asked for")
    return run_scenario(ScenarioFile(scenario, "", ""), choice, runs, observer or RunObserverStub())


def test_the_interpreter_looks_for_modules_without_importing_them() -> None:
    """An import of PyTorch takes a second and hundreds of megabytes; a module may even have side effects."""
    described = describe_interpreter(None, ("json", "no_such_package", "this"))

    assert described.missing == ("no_such_package",)


def test_a_package_that_is_missing_fails_the_run_before_anything_starts(tmp_path: Path) -> None:
    """A trial that fails after minutes would leave half a comparison behind."""
    scenario = declare("fail", standard=["json"], other=["no_such_package"])

    with pytest.raises(UserError) as raised:
        run(scenario, tmp_path / "runs")

    assert str(raised.value) == (
        f"trial 001-script-w2-other-r0: {REASON}, or write missing_packages: skip to leave out such trials"
    )
    assert not (tmp_path / "runs").exists()


def test_a_scenario_can_skip_trials_whose_packages_are_missing(tmp_path: Path) -> None:
    """The other trials run; terminal, manifest and report name those that did not, and why."""
    observer = PrintingObserver()
    folder = run(declare("skip", standard=["json"], other=["no_such_package"]), tmp_path, observer).folder

    manifest = json.loads((folder / "manifest.json").read_text())
    summary = analyse_run(RunFolder(folder))[1]
    assert manifest["trials"] == ["000-script-w2-standard-r0"]
    assert [(each.condition, each.reason) for each in summary.skipped] == [("framework other", REASON)]
    assert f"1 of 2 trials was skipped: {REASON}" in summary_sentences(summary)
    assert observer.texts == [f"1 trial will not run (missing_packages: skip): {REASON}"]
    assert len(read_interrupted_run(folder).skipped_trials) == 1


def test_no_trial_is_skipped_if_all_packages_are_installed(tmp_path: Path) -> None:
    finished = run(declare("skip", standard=["json"], other=["numpy"]), tmp_path)

    assert len(finished.statuses) == 2
    assert analyse_run(RunFolder(finished.folder))[1].skipped == []


def test_a_run_of_which_every_trial_lacks_packages_is_rejected(tmp_path: Path) -> None:
    """An empty run would look like a success."""
    with pytest.raises(UserError, match="frameworks: this host can run no trial: no_such_package is not installed"):
        run(declare("skip", other=["no_such_package"]), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_swept_command_does_not_run_in_virtual_time() -> None:
    """The first trials could run, so the run would fail in the middle."""
    with pytest.raises(UserError, match="a command runs in real processes"):
        run_scenario(
            ScenarioFile(declare("skip", standard=["json"]), "", ""),
            EngineChoice(ScriptedEngine({}), "asked for"),
            Path("runs"),
            RunObserverStub(),
        )


MODULE_MODEL = """
# Does a module of PyTorch train?
name: mine
workload:
  dataset: {kind: digits}
  model: {kind: torch, module: "code/script.py:Net"}
  optimiser: {kind: sgd, rate: 0.1}
  batch: 64
  epochs: 1
strategies: {ring: {kind: all_reduce}}
"""


@pytest.fixture
def host_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch is not found on this host."""
    monkeypatch.setattr("services.learning.own_code.torch_package.find_spec", lambda _: None)


def test_a_module_of_pytorch_without_pytorch_is_an_error_of_its_line(host_without_torch: None) -> None:
    """The message names the package, the interpreter and the remedy."""
    Path("mine.yaml").write_text(MODULE_MODEL)

    with pytest.raises(ScenarioError) as raised:
        load_scenario(Path("mine.yaml"))

    assert str(raised.value).splitlines()[0] == (
        "mine.yaml:6: workload.model.kind: this model needs PyTorch, which is not installed for "
        f"{sys.executable}; install it with: {sys.executable} -m pip install 'torch>=2.4'"
    )


def test_validation_skips_a_module_of_pytorch_if_the_scenario_says_so(host_without_torch: None) -> None:
    """Without PyTorch its parameters are not known, so that no trial can be planned; all other files are checked."""
    Path("mine.yaml").write_text(f"{MODULE_MODEL}missing_packages: skip\n")

    result = CliRunner().invoke(cli.app, ["validate", "mine.yaml", "quickstart"])

    skipped, counted = result.stdout.splitlines()
    assert result.exit_code == 0
    assert skipped.startswith("mine: no trial can be planned on this host: this model needs PyTorch")
    assert counted == "quickstart: 7 trials"


def make_environment_with_a_far_package(folder: Path) -> Path:
    """Make an environment that finds `far_package` elsewhere; return the folder of that package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (packages,) = (folder / "venv/lib").glob("python*/site-packages")
    elsewhere = folder / "elsewhere"
    (elsewhere / "far_package").mkdir(parents=True)
    (elsewhere / "far_package/__init__.py").touch()
    (packages / "near_package.py").touch()
    (packages / "others.pth").write_text(f"{elsewhere}\n")
    return elsewhere


@pytest.mark.parametrize(("requires", "is_rejected"), [("far_package, no_such_package", False), ("far_package", True)])
def test_a_command_without_its_packages_is_not_rejected_for_those_of_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requires: str, is_rejected: bool
) -> None:
    """Its trials are skipped, so the scenario must remain usable on a host without the packages."""
    monkeypatch.chdir(tmp_path)
    make_environment_with_a_far_package(tmp_path)
    (tmp_path / "code").mkdir(exist_ok=True)
    (tmp_path / "code" / "script.py").touch()
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nworkload: {kind: command, command: [python, script.py], folder: code, python: venv/bin/python, "
        f"requires: [{requires}]}}\nmissing_packages: skip\nbaseline: false\n"
        "cluster: {workers: 2, worker: {memory: 512MiB}}\nstrategies: {gloo: {kind: command}}\n"
    )

    if is_rejected:
        with pytest.raises(
            ScenarioError, match=r"^mine\.yaml:2: workload\.requires: .* finds far_package in elsewhere"
        ):
            load_scenario("mine.yaml", engine="docker")
    else:
        load_scenario("mine.yaml", engine="docker")


def test_a_package_outside_of_the_environment_is_rejected_with_containers(tmp_path: Path) -> None:
    """Python finds it through a .pth file, as in an environment made with --system-site-packages."""
    elsewhere = make_environment_with_a_far_package(tmp_path)

    interpreter = describe_interpreter(
        tmp_path / "venv/bin/python", ("json", "sys", "near_package", "far_package", "no_such_package")
    )
    (tmp_path / "code").chmod(0o755)
    plan = plan_command(folder=str(tmp_path / "code"), interpreter=interpreter.model_dump() | {"version": "3.11.9"})

    assert interpreter.outside == {"far_package": str(elsewhere)}
    assert interpreter.missing == ("no_such_package",)
    reason = r"finds far_package in elsewhere, but containers import only from venv/lib/python3\.\d+/site-packages"
    with pytest.raises(UserError, match=reason):
        check_commands([plan])
    check_commands([plan.model_copy(update={"engine": "local"})])
