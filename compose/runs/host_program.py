"""Programs of this host that end with the runner, such as `docker compose up` and the build of an image.

`python -m compose.runs.host_program PROGRAM ARGUMENT...` is the guard of a program. It runs the program in its own
process group, and kills the group when its standard input reaches the end of file. Only the runner holds the write end.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from threading import Thread

from compose.runs.python_program import python_command, python_environment
from services.runtime.runner_pipe import wait_for_hang_up


def run_host_program(command: Sequence[str | Path], timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program and return its exit code and output.

    The program and the processes that it starts are killed when this call or this process ends. They are in a session
    of their own, so that Ctrl-C reaches only this process.

    Args:
        command: program and its arguments.
        timeout_s: wall seconds after which the program is killed; None for no limit.

    Raises:
        subprocess.TimeoutExpired: the program has run longer than `timeout_s`.
    """
    read_end, write_end = os.pipe()
    with (
        os.fdopen(read_end) as guard_input,
        os.fdopen(write_end, "w") as write_pipe,
        subprocess.Popen(  # noqa: S603 - the callers name their own programs
            [*python_command("compose.runs.host_program"), *command],
            stdin=guard_input,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=python_environment(),
            start_new_session=True,
        ) as guard,
        closing(write_pipe),  # before the end of `guard` is awaited
    ):
        stdout, stderr = guard.communicate(timeout=timeout_s)
    return subprocess.CompletedProcess(guard.args, guard.returncode, stdout, stderr)


def _run_guarded(command: list[str]) -> int:
    Thread(target=_kill_process_group_at_hang_up, daemon=True).start()
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode  # noqa: S603 - see `run_host_program`


def _kill_process_group_at_hang_up() -> None:
    wait_for_hang_up(sys.stdin.fileno())
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(_run_guarded(sys.argv[1:]))
