"""Predictions for commands that are not known, and notes on repeats: what the plan prints, and when it does not."""

import sys
from io import StringIO
from pathlib import Path

import pytest
from command_plans import make_step_profile, plan_command
from rich.console import Console

from compose.commands.dry_run import measure_step_profile_on_host
from compose.commands.limits import check_commands
from ensayo.terminal.tables import plan_table
from ensayo.unknown_predictions import repeat_lines, unknown_prediction_lines
from services.commands.missing_module import advise_on_missing_module
from services.plan import CommandPlan
from services.scenario.commands.command_workload import CommandWorkload
from services.scenario.commands.step_profile import StepProfileOutcome
from services.schema.errors import HostError, UserError

PACED = {"throughput": "5/s"}
PROFILE = StepProfileOutcome(make_step_profile(("all_reduce", 4000), launch_shares=(0.5,)))


def table_text(plan: CommandPlan) -> str:
    console = Console(width=200, file=StringIO())
    console.print(plan_table([plan]))
    return console.file.getvalue()


def test_without_a_step_profile_the_plan_prints_no_times_and_no_bytes() -> None:
    """`0 ms` and `0 B` are claims: a user reads that the command communicates nothing."""
    plan = plan_command(StepProfileOutcome(None, "dry run: no such file"))

    assert "0 ms" not in table_text(plan)
    assert "0 B" not in table_text(plan)
    assert list(unknown_prediction_lines([plan])) == ["step time and bytes of 000 not known: dry run: no such file"]


def test_the_bytes_of_an_unpaced_command_are_predicted_and_its_times_are_not() -> None:
    """It computes as fast as this host, so that 0 ms of compute would be wrong."""
    plan = plan_command(PROFILE)

    assert "0 ms" not in table_text(plan)
    assert " kB" in table_text(plan)
    (line,) = unknown_prediction_lines([plan])
    assert line.startswith("step time of")
    assert "no compute speed is declared" in line


def test_a_paced_command_with_a_step_profile_has_no_note() -> None:
    """All its values are predicted."""
    plan = plan_command(PROFILE, worker=PACED)

    assert list(unknown_prediction_lines([plan])) == []
    assert "200 ms" in table_text(plan)


def test_bytes_of_a_broadcast_are_not_known() -> None:
    """They depend on its root; `0 B` would deny that it sends any."""
    profile = StepProfileOutcome(make_step_profile(("broadcast", 4000), launch_shares=(0.5,)))

    (line,) = unknown_prediction_lines([plan_command(profile, worker=PACED)])

    assert line.startswith("bytes of")
    assert "broadcast" in line


@pytest.mark.parametrize(("words", "repeat", "has_note"), [([], 1, True), (["{seed}"], 1, False), ([], 0, False)])
def test_repeats_without_the_seed_get_a_note(words: list[str], repeat: int, *, has_note: bool) -> None:
    """Such repeats show the noise of the host, not that of the training."""
    plan = plan_command(command=["python", "train.py", *words]).model_copy(update={"repeat": repeat})

    assert bool(list(repeat_lines([plan]))) == has_note


@pytest.mark.parametrize(
    ("reason", "remedy", "other"),
    [
        ("dry run: the command ended with exit code 2: no such file", "correct the command", "remove throughput"),
        ("dry run: the script failed: KeyError: 'x'", "correct the command", "remove throughput"),
        (
            "dry run: the script failed: ModuleNotFoundError: No module named 'torch'",
            "install torch in the interpreter, or set workload.python or workload.requirements",
            "remove throughput",
        ),
        ("dry run: the script created no process group", "remove throughput", "correct the command"),
        (
            "dry run: the script ended after 3 optimiser steps; the dry run needs 8",
            "let it make 8 steps within 120 s, or remove throughput",
            "correct the command",
        ),
    ],
)
def test_the_remedy_of_a_failed_dry_run_fits_its_reason(reason: str, remedy: str, other: str) -> None:
    """Without its speeds, a script with an error fails as well."""
    plan = plan_command(StepProfileOutcome(None, reason), worker=PACED)

    with pytest.raises(UserError) as raised:
        check_commands([plan])

    assert reason in str(raised.value)
    assert remedy in str(raised.value)
    assert other not in str(raised.value)


def test_the_plan_rejects_packages_of_another_python_in_containers() -> None:
    """`ensayo plan` would otherwise accept what `ensayo run` rejects."""
    interpreter = {"path": "/usr/bin/python3.12", "version": "3.12.1"}
    plan = plan_command(interpreter=interpreter)

    with pytest.raises(HostError, match=r"Python 3\.12, but the node image has Python 3\.11"):
        check_commands([plan])
    check_commands([plan_command(interpreter=interpreter | {"version": "3.11.9"})])


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["trian.py"], "exit code 2: {python}: can't open file 'trian.py': [Errno 2] No such file or directory"),
        (["train.py", "--epohcs", "3"], "exit code 2: train.py: error: unrecognized arguments: --epohcs 3"),
    ],
)
def test_a_dry_run_that_fails_has_pythons_own_error(
    words: list[str], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a script made no process group either, but this is not its mistake."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("import argparse\nargparse.ArgumentParser().parse_args()\n")
    interpreter = {"path": sys.executable, "version": "3.11.2"}
    workload = CommandWorkload.model_validate(
        {"command": ["python", *words], "folder": str(folder), "interpreter": interpreter}
    )

    outcome = measure_step_profile_on_host(workload, 2, 0)

    assert outcome.step_profile is None
    assert outcome.reason.endswith(error.format(python=sys.executable))


@pytest.mark.parametrize(
    ("environment", "advice"),
    [
        ({"interpreter": {"path": "/opt/v/bin/python", "version": "3.11.2"}}, "install torch in /opt/v/bin/python, or"),
        ({"requirements": "/code/requirements.txt"}, "add torch to /code/requirements.txt"),
        ({"image": "my/training:1"}, "install torch in the image my/training:1"),
    ],
)
def test_a_missing_module_is_installed_where_the_command_runs(environment: dict[str, object], advice: str) -> None:
    """Advice for another environment would not help. Other errors get no advice on modules."""
    workload = CommandWorkload.model_validate({"command": ["python", "train.py"], **environment})

    assert advise_on_missing_module("ModuleNotFoundError: No module named 'torch.nn'", workload).startswith(advice)
    assert advise_on_missing_module("ValueError: torch", workload) == ""
