"""Processes that are metered, and errors of the metering, which never stop a script."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT_PROCESS = Path("services/commands/script_process").resolve()
PRINT_HOOKS = "import sys; print([type(finder).__name__ for finder in sys.meta_path].count('ImportHooks'))"
needs_torch = pytest.mark.torch


def hooks_in_process(tmp_path: Path, **environment: str) -> str:
    """Return the number of import hooks in a Python process with this environment."""
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"mode": "dry_run", "output": str(tmp_path / "output.json")}))
    inherited = {key: value for key, value in os.environ.items() if key not in ("RANK", "PYTHONPATH")}
    process = subprocess.run(
        [sys.executable, "-c", PRINT_HOOKS],
        env={**inherited, "PYTHONPATH": str(SCRIPT_PROCESS), "ENSAYO_METER": str(settings), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return process.stdout.strip() + process.stderr


def test_only_a_rank_that_is_no_child_of_a_metered_process_is_metered(tmp_path: Path) -> None:
    """A launcher has no rank; loaders and other programs that a script starts inherit its environment."""
    assert hooks_in_process(tmp_path, RANK="0") == "1"
    assert hooks_in_process(tmp_path) == "0"
    assert hooks_in_process(tmp_path, RANK="0", ENSAYO_METER="") == "0"
    assert hooks_in_process(tmp_path, RANK="0", ENSAYO_METER_PID="1") == "0"


def test_unreadable_settings_are_reported_and_do_not_stop_the_process(tmp_path: Path) -> None:
    """The agent notices that no process has reported itself."""
    output = hooks_in_process(tmp_path, RANK="0", ENSAYO_METER=str(tmp_path / "missing.json"))

    assert output.startswith("0ensayo: this process is not metered: FileNotFoundError")


def test_the_shadowed_sitecustomize_is_executed(tmp_path: Path) -> None:
    """An environment may configure itself in its sitecustomize, for example for coverage."""
    (tmp_path / "sitecustomize.py").write_text("print('configured')")

    output = hooks_in_process(tmp_path, RANK="0", PYTHONPATH=f"{SCRIPT_PROCESS}{os.pathsep}{tmp_path}")

    assert output == "configured\n1"


@needs_torch
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_children_of_a_metered_process_are_not_metered(run_ranks: Any, context: str) -> None:
    """Workers of a loader inherit environment and, if forked, memory; none may send or end anything."""
    pytest.importorskip("torch")
    for rank in run_ranks("child_processes.py", context):
        assert rank.exit_code == 0, rank.errors
        assert rank.kinds() == ["hello", "begin", *["step"] * 8, "end"]
        assert "gloo: Backend" in rank.output


@needs_torch
def test_a_lost_agent_ends_the_metering_and_not_the_script(run_ranks: Any) -> None:
    """The agent of a stopped trial closes its sockets first."""
    pytest.importorskip("torch")
    plain = run_ranks("ddp_mlp.py", 6, is_metered=False)

    for rank, unmetered in zip(run_ranks("ddp_mlp.py", 6, replies=4), plain, strict=True):
        assert rank.exit_code == 0
        assert rank.output == unmetered.output
        assert rank.kinds() == ["hello", "begin", "step", "step"]


@needs_torch
def test_a_script_without_agent_is_reported_as_unmetered(run_ranks: Any) -> None:
    """Without the socket there is nowhere to send a note."""
    pytest.importorskip("torch")
    for rank in run_ranks("ddp_mlp.py", 3, socket="/nonexistent/meter.sock"):
        assert rank.exit_code == 0
        assert "ensayo: the metering has ended: FileNotFoundError" in rank.errors
