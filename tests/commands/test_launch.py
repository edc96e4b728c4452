"""Environment of a command: what a run and a dry run set, and which packages the command imports."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from command_plans import plan_command

from compose.commands.dry_run import _environment
from services.commands.launch import SCRIPT_PROCESS_FOLDER, command_environment
from services.plan import CommandPlan
from services.scenario.commands.launch_variables import RESERVED_VARIABLES

RunTrial: TypeAlias = Callable[..., Any]


def local_plan(**workload: Any) -> CommandPlan:
    return plan_command(**workload).model_copy(update={"engine": "local"})


def environment_of_rank(plan: CommandPlan, rank: int) -> dict[str, str]:
    return command_environment(plan, plan.node_plan(f"worker-{rank}"), Path("/scratch/meter.json"))


def test_a_rank_has_the_variables_that_torchrun_sets() -> None:
    """Frameworks such as Lightning recognise a launched process by them, and do not start others."""
    environment = environment_of_rank(local_plan(), 1)

    expected = {
        **dict.fromkeys(("RANK", "GROUP_RANK", "ROLE_RANK"), "1"),
        **dict.fromkeys(("WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"), "2"),
        **dict.fromkeys(("LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"), "0"),
        "LOCAL_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "TORCHELASTIC_RUN_ID": "run-000-script-w2-r0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }
    assert {name: environment[name] for name in expected} == expected


def test_a_dry_run_has_the_variables_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that reads one of them must not fail in the dry run only."""
    for name in RESERVED_VARIABLES - {"PATH"}:
        monkeypatch.delenv(name, raising=False)
    plan = local_plan()

    dry = _environment(plan.workload, 2, 0, Path("/scratch"))

    assert RESERVED_VARIABLES & environment_of_rank(plan, 0).keys() - dry.keys() == {"TF_CONFIG"}


def test_packages_of_ensayo_are_not_on_the_path_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTHONPATH comes before the packages of the user's environment."""
    monkeypatch.setenv("PYTHONPATH", "/ensayo/site-packages")

    assert environment_of_rank(local_plan(), 0)["PYTHONPATH"] == str(SCRIPT_PROCESS_FOLDER)


def test_a_command_imports_the_packages_of_its_own_environment(
    run_trial: RunTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed Ensayo is on the PYTHONPATH of its nodes, with its versions of NumPy and others."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (packages,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    for folder, owner in ((tmp_path / "ensayo", "Ensayo"), (packages, "the user")):
        folder.mkdir(exist_ok=True)
        (folder / "shared_library.py").write_text(f"OWNER = {owner!r}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "ensayo"))
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("import shared_library\nprint('library of', shared_library.OWNER)\n")
    path = tmp_path / "mine.yaml"
    path.write_text(
        "name: mine\n"
        "workload: {kind: command, command: python train.py, folder: code, python: venv/bin/python}\n"
        "cluster: {workers: 2, worker: {memory: 512MiB}}\nstrategies: {script: {kind: command}}\nbaseline: false\n"
    )

    trial = run_trial("local", path, "script")

    assert (trial.folder / "logs/worker-1.err").read_text() == "library of the user\n"
