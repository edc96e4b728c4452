"""Commands with a requirements file: the host makes an environment of it, and the command runs there."""

import json
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from command_plans import plan_command
from programs.wheels import write_wheel

from compose.commands import environments
from compose.commands.environments import prepare_environment
from compose.commands.packages import explain_missing_packages
from compose.commands.references import CommandReferenceError, check_command_files
from compose.scenario_files.load import load_scenario
from services.scenario.commands.command_workload import CommandWorkload
from services.scenario.scenario import Scenario
from services.schema.errors import UserError

RunTrial: TypeAlias = Callable[..., Any]

REQUIREMENTS = "--no-index\n--find-links wheels\nsmall_package\n"
SCENARIO = """
name: mine
workload:
  kind: command
  command: python script.py
  requirements: requirements.txt
  requires: [{required}]
  metrics: {{accuracy: "accuracy=([0-9.]+)"}}
cluster: {{workers: 2, worker: {{memory: 512MiB}}}}
strategies: {{script: {{kind: command}}}}
baseline: false
"""
SCRIPT = "import small_package\nprint(f'accuracy={small_package.ACCURACY}')\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a script, its requirements file, and the wheel that this names."""
    folder = tmp_path_factory.mktemp("project")
    folder.chmod(0o755)
    (folder / "wheels").mkdir()
    write_wheel(folder / "wheels", "small_package", "1.5", "ACCURACY = 0.25\n")
    (folder / "requirements.txt").write_text(REQUIREMENTS)
    (folder / "script.py").write_text(SCRIPT)
    (folder / "mine.yaml").write_text(SCENARIO.format(required="small_package"))
    return folder


@pytest.fixture(scope="module")
def module_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the cache of this module: an environment takes seconds to make."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def shared_cache(module_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(module_cache))


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of environments in a cache of one test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ensayo" / "environments"


class FakeInstallation:
    """Replacement of pip, which makes an environment without packages, or ends with an error."""

    def __init__(self, error: BaseException | None = None, duration_s: float = 0.0) -> None:
        self.error, self.duration_s, self.calls = error, duration_s, 0

    def __call__(self, environment: Path, requirements: Path, base_python: Path) -> tuple[str, ...]:
        self.calls += 1
        (environment / "bin").mkdir(parents=True)
        (environment / "bin" / "python").symlink_to(base_python)
        time.sleep(self.duration_s)
        if self.error:
            raise self.error
        return (f"made=={self.calls}",)


def install_with(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> FakeInstallation:
    installation = FakeInstallation(**settings)
    monkeypatch.setattr(environments, "_install", installation)
    return installation


def write_requirements(folder: Path, text: str) -> Path:
    path = folder / "requirements.txt"
    path.write_text(text)
    return path


def write_project(folder: Path) -> Path:
    """Write a scenario with a script and a requirements file, and return its path."""
    folder.mkdir(mode=0o755)
    (folder / "script.py").write_text(SCRIPT)
    write_requirements(folder, "numpy==2.1.0\n")
    path = folder / "mine.yaml"
    path.write_text(SCENARIO.format(required=""))
    return path


def load_workload(path: Path) -> CommandWorkload:
    workload = load_scenario(path).workload
    assert isinstance(workload, CommandWorkload)
    return workload


@pytest.mark.usefixtures("shared_cache")
def test_an_environment_has_the_packages_of_its_file_and_no_others(project: Path) -> None:
    """Packages of Ensayo's own environment would hide what the file lacks."""
    environment = prepare_environment(project / "requirements.txt")

    code = (
        "import importlib.util as u, json; print(json.dumps([bool(u.find_spec(n)) for n in ('small_package', 'yaml')]))"
    )
    output = subprocess.run([environment.python, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(output) == [True, False]
    assert [line.partition(" ")[0].partition("==")[0] for line in environment.installed.packages] == ["small_package"]


@pytest.mark.usefixtures("shared_cache")
def test_packages_can_be_read_by_the_user_of_containers(project: Path) -> None:
    """Containers run as another user, and a user may create files that only this user can read."""
    python = prepare_environment(project / "requirements.txt").python

    (module,) = python.parents[1].glob("lib/python3*/site-packages/small_package.py")
    assert module.stat().st_mode & 0o004
    assert module.parent.stat().st_mode & 0o005 == 0o005


@pytest.mark.usefixtures("shared_cache")
def test_a_plan_records_digest_and_versions(project: Path) -> None:
    """Without the versions that pip chose, a run can't be repeated."""
    workload = load_workload(project / "mine.yaml")

    environment = prepare_environment(project / "requirements.txt")
    assert workload.installed_requirements == environment.installed
    assert workload.interpreter
    assert workload.interpreter.path == str(environment.python)
    assert workload.missing_modules == ()
    assert any("small_package" in line for line in workload.installed_requirements.packages)


@pytest.mark.usefixtures("shared_cache")
def test_the_command_runs_in_the_environment(run_trial: RunTrial, project: Path) -> None:
    """The script imports a package that only this environment has."""
    trial = run_trial("local", project / "mine.yaml", "script")

    values = [event["value"] for event in trial.events("coordinator", "eval_metrics")]
    recorded = json.loads((trial.folder / "plan.json").read_text())["workload"]["installed_requirements"]
    assert values == [{"accuracy": 0.25}]
    assert len(recorded["sha256"]) == 64
    assert len(recorded["packages"]) == 1


@pytest.mark.usefixtures("shared_cache")
def test_a_module_that_is_missing_is_added_to_the_file(project: Path) -> None:
    """An installation into the cached environment by hand would be lost."""
    (project / "other.yaml").write_text(
        SCENARIO.format(required="no_such_package").replace("name: mine", "name: other")
    )

    workload = load_workload(project / "other.yaml")

    plan = plan_command().model_copy(update={"workload": workload})
    assert explain_missing_packages(plan) == (
        f"no_such_package is not in the environment of {project}/requirements.txt; add the packages that contain "
        "no_such_package to this file"
    )


def test_an_environment_is_made_once(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of gigabytes are not installed for every run."""
    installation = install_with(monkeypatch)
    path = write_requirements(tmp_path, "numpy==2.1.0\n")

    assert prepare_environment(path) == prepare_environment(path)
    assert installation.calls == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), UserError("pip failed")], ids=["interrupted", "failed"])
def test_a_build_that_does_not_end_leaves_no_environment(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """The next run would use half an environment."""
    install_with(monkeypatch, error=error)
    path = write_requirements(tmp_path, "numpy==2.1.0\n")

    with pytest.raises(type(error)):
        prepare_environment(path)

    assert [file.name for file in own_cache.rglob("*") if file.is_file()] == ["lock"]
    install_with(monkeypatch)
    assert prepare_environment(path).installed.packages == ("made==1",)


def test_what_a_killed_build_has_left_is_replaced(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed removes nothing."""
    install_with(monkeypatch)
    path = write_requirements(tmp_path, "numpy==2.1.0\n")
    python = prepare_environment(path).python
    (python.parents[2] / "packages.json").unlink()
    (python.parent / "left").touch()

    prepare_environment(path)

    assert not (python.parent / "left").exists()


def test_two_runs_at_once_make_one_environment(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs of pip in one folder would damage each other's files."""
    installation = install_with(monkeypatch, duration_s=0.5)
    path = write_requirements(tmp_path, "numpy==2.1.0\n")
    made: list[object] = []

    threads = [threading.Thread(target=lambda: made.append(prepare_environment(path))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert installation.calls == 1
    assert len(made) == 2
    assert made[0] == made[1]


@pytest.fixture
def python_of(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Return a function that returns the interpreter for a requirements file in a folder."""
    install_with(monkeypatch)

    def prepare(folder: str, text: str) -> Path:
        (tmp_path / folder).mkdir(exist_ok=True)
        return prepare_environment(write_requirements(tmp_path / folder, text)).python

    return prepare


def test_other_requirements_have_another_environment(python_of: Callable[[str, str], Path], tmp_path: Path) -> None:
    """Included files count, too."""
    first = python_of("a", "numpy==2.1.0\n")
    assert python_of("a", "numpy==2.1.1\n") != first

    (tmp_path / "a" / "limits.txt").write_text("scipy<2\n")
    limited = python_of("a", "-c limits.txt\nscipy\n")
    (tmp_path / "a" / "limits.txt").write_text("scipy<1\n")
    assert python_of("a", "-c limits.txt\nscipy\n") != limited


@pytest.mark.parametrize(
    ("text", "is_shared"),
    [
        ("numpy==2.1.0\n", True),
        ("--index-url https://example.org/simple/\nnumpy  # or/and scipy\n", True),
        ("mine @ https://example.org/mine-1.0-py3-none-any.whl\n", True),
        ("--find-links wheels\nmine\n", False),
        ("./mine-1.0-py3-none-any.whl\n", False),
        ("mine @ file:///data/mine.zip\n", False),
        ("mine-1.0-py3-none-any.whl\n", False),
    ],
)
def test_equal_files_in_two_folders_share_an_environment_unless_they_name_local_files(
    python_of: Callable[[str, str], Path], text: str, is_shared: bool
) -> None:
    """The same relative path names other packages in another folder."""
    assert (python_of("a", text) == python_of("b", text)) is is_shared


def test_the_message_of_pip_is_shown_with_a_remedy(own_cache: Path, tmp_path: Path) -> None:
    """The file is wrong, or the host has no network: pip knows which."""
    path = write_requirements(tmp_path, "--no-index\nno_such_package\n")

    with pytest.raises(UserError, match=r"requirements.txt: pip can't install.*no_such_package.*; correct the file"):
        prepare_environment(path)


def test_a_run_is_not_continued_without_its_environment(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new environment may have other versions."""
    install_with(monkeypatch)
    workload = load_workload(write_project(tmp_path / "code"))
    check_command_files(workload)

    assert workload.interpreter
    (Path(workload.interpreter.path).parents[2] / "packages.json").unlink()

    with pytest.raises(CommandReferenceError, match="the environment of the run is not in the cache any more"):
        check_command_files(workload)


def test_a_resolved_scenario_is_loaded_again(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its paths are absolute, so that it may be loaded in another folder."""
    install_with(monkeypatch)
    scenario = load_scenario(write_project(tmp_path / "code"))

    monkeypatch.chdir("/")

    assert isinstance(scenario, Scenario)
    assert load_scenario(scenario) == scenario
