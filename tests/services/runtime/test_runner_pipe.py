"""Processes of a trial end with the runner, in whatever way the runner ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from services.runtime.runner_pipe import EXIT_RUNNER_ENDED, hold_runner_pipe

RUNNER = """
import subprocess, sys, time
from pathlib import Path
from services.runtime.runner_pipe import hold_runner_pipe
with hold_runner_pipe(Path(sys.argv[1])):
    other_child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    print(other_child.pid, flush=True)
    time.sleep(60)
"""
NODE = """
import signal, sys
from pathlib import Path
from services.runtime.runner_pipe import exit_when_runner_ends
exit_when_runner_ends(Path(sys.argv[1]), "worker-0")
print("waiting", flush=True)
signal.pause()
"""

FILL_STDERR = """
import os
os.set_blocking(2, False)
try:
    while True:
        os.write(2, bytes(4096))
except BlockingIOError:
    os.set_blocking(2, True)
"""


@contextmanager
def start_program(program: str, *arguments: Path) -> Iterator["subprocess.Popen[str]"]:
    """Start a Python program, wait for its first line, and kill it at the end of the `with` block."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout
    return process.stdout.readline().strip()


@pytest.fixture
def runner(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Return a runner that holds the pipe `tmp_path / "runner"` and has another child process."""
    with start_program(RUNNER, tmp_path / "runner") as process:
        other_child = int(first_line(process))
        yield process
    os.kill(other_child, signal.SIGKILL)


def test_a_process_exits_with_a_message_when_the_runner_is_killed(
    tmp_path: Path, runner: "subprocess.Popen[str]"
) -> None:
    """The other child of the runner still runs: it must not have inherited the write end of the pipe."""
    with start_program(NODE, tmp_path / "runner") as node:
        assert first_line(node) == "waiting"

        runner.kill()
        _, stderr = node.communicate(timeout=30)

    assert node.returncode == EXIT_RUNNER_ENDED
    assert stderr == "the runner has ended, so worker-0 ends\n"


def test_a_process_that_starts_after_the_end_of_the_runner_exits_at_once(
    tmp_path: Path, runner: "subprocess.Popen[str]"
) -> None:
    """Compose may start a container after the runner was killed."""
    runner.kill()
    runner.wait()

    with start_program(NODE, tmp_path / "runner") as node:
        stdout, stderr = node.communicate(timeout=30)

    assert node.returncode == EXIT_RUNNER_ENDED
    assert stdout == ""
    assert stderr == "the runner has ended, so worker-0 ends\n"


def test_a_process_exits_although_its_standard_error_is_full_and_not_read(
    tmp_path: Path, runner: "subprocess.Popen[str]"
) -> None:
    """A full pipe would block the thread that must end the process."""
    with start_program(FILL_STDERR + NODE, tmp_path / "runner") as node:
        assert first_line(node) == "waiting"

        runner.kill()

        assert node.wait(30) == EXIT_RUNNER_ENDED


def test_the_end_of_a_trial_ends_the_processes_of_this_trial(tmp_path: Path) -> None:
    """The runner continues with the next trial, which has another pipe."""
    with ExitStack() as nodes:
        with hold_runner_pipe(tmp_path / "runner"):
            node = nodes.enter_context(start_program(NODE, tmp_path / "runner"))
            assert first_line(node) == "waiting"

        assert node.wait(30) == EXIT_RUNNER_ENDED


def test_a_node_can_end_with_the_runner_before_its_imports() -> None:
    """When many nodes start at once, their imports take longer than nodes may outlive the runner."""
    program = "import sys, services.node.__main__; print({'numpy', 'pydantic', 'grpc'} & sys.modules.keys())"

    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert finished.stdout == "set()\n"


@pytest.mark.parametrize(
    "command",
    [["node", "worker-0"], ["measure", "requester", "127.0.0.1:1", "127.0.0.1:2"]],
    ids=lambda words: words[0],
)
def test_every_command_of_a_node_ends_with_the_runner(tmp_path: Path, command: list[str]) -> None:
    """Nothing but the end of the runner is the reason: the command would fail later for lack of a plan or of keys."""
    os.mkfifo(tmp_path / "runner")

    finished = subprocess.run(
        [sys.executable, "-m", "services.node", *command, "--runner-pipe", tmp_path / "runner"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert finished.returncode == EXIT_RUNNER_ENDED
    assert finished.stderr == f"the runner has ended, so {command[1]} ends\n"
