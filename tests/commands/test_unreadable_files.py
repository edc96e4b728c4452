"""Files of a command that containers can't read: found before anything starts, and only where it matters."""

from pathlib import Path

import pytest
from command_plans import plan_command

from compose.commands.limits import check_commands
from compose.scenario_files.load import load_scenario
from compose.scenario_files.problems import ScenarioError
from services.plan import CommandPlan
from services.schema.errors import UserError


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandPlan:
    """Return the plan of a command in containers, which run as another user."""
    monkeypatch.setattr("compose.commands.unreadable_files.container_user", lambda: "54321:54321")
    tmp_path.chmod(0o755)
    (tmp_path / "code").mkdir(mode=0o755)
    (tmp_path / "code" / "train.py").write_text("")
    (tmp_path / "copies").mkdir()
    (tmp_path / "copies" / "train.py").write_text("")
    return plan_command(folder=str(tmp_path / "code"), code=str(tmp_path / "copies"))


@pytest.mark.parametrize(("name", "remedy"), [(".env", "chmod o+r, or"), ("", "chmod o+rx, or")])
def test_a_private_file_is_named_before_containers_start(plan: CommandPlan, name: str, remedy: str) -> None:
    """The nodes would fail with a bare PermissionError, after all images are built."""
    private = Path(plan.workload.folder, name)
    private.touch()
    private.chmod(0o700 if private.is_dir() else 0o600)

    with pytest.raises(UserError) as raised:
        check_commands([plan])

    assert str(private) in str(raised.value)
    assert remedy in str(raised.value)


def test_processes_of_the_user_read_private_files(plan: CommandPlan) -> None:
    """They run as the user, with engine local, and in containers unless the user is root."""
    folder = Path(plan.workload.folder)
    (folder / ".env").touch(mode=0o600)
    folder.chmod(0o700)

    check_commands([plan.model_copy(update={"engine": "local"})])


def test_files_that_are_not_copied_may_be_private(plan: CommandPlan) -> None:
    """Python files are copied from their record, and large files are links that the script may never follow."""
    folder = Path(plan.workload.folder)
    (folder / "train.py").chmod(0o600)
    (folder / "notes").mkdir(mode=0o700)
    (folder / "large.bin").touch(mode=0o600)
    with (folder / "large.bin").open("wb") as file:
        file.truncate(2 << 20)

    check_commands([plan])


SCENARIO = """# Is a private file named with the line of the folder?
name: private
workload:
  kind: command
  command: python train.py
  folder: code
cluster: {workers: 2, worker: {memory: 512MiB}}
strategies: {gloo: {kind: command}}
baseline: false
"""


def test_the_error_for_a_private_file_has_the_line_of_the_folder(
    plan: CommandPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scenario may name several folders in a sweep; the user must see which one to change."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (Path(plan.workload.folder) / ".env").touch(mode=0o600)
    Path("private.yaml").write_text(SCENARIO)

    with pytest.raises(ScenarioError, match=r"^private\.yaml:6: workload\.folder: code/\.env: containers run as"):
        load_scenario("private.yaml", engine="docker")
    load_scenario("private.yaml", engine="local")
