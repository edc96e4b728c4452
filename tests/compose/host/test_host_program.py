"""Programs that the runner starts end with the runner, together with the processes that they have started."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs.processes import descendant_pids, running, wait_until_empty

from compose.runs.host_program import run_host_program

EXIT_S = 5.0
SLEEP_IN_CHILD = ["sh", "-c", "trap '' INT HUP TERM; sleep 60 & wait"]
RUNNER = "import sys; from compose.runs.host_program import run_host_program; run_host_program(sys.argv[1:])"


@pytest.fixture
def runner() -> Iterator["subprocess.Popen[bytes]"]:
    """Return a process that runs a program, once the program has started a child process."""
    with subprocess.Popen([sys.executable, "-c", RUNNER, *SLEEP_IN_CHILD]) as process:
        while len(list(descendant_pids(process.pid))) < 3:  # guard, shell, sleep
            time.sleep(0.01)
        yield process
        process.kill()


def test_the_output_and_the_exit_code_of_the_program_are_returned() -> None:
    command = ["sh", "-c", "echo output; echo error >&2; exit 7"]

    finished = run_host_program(command)

    assert (finished.stdout, finished.stderr, finished.returncode) == ("output\n", "error\n", 7)


def test_the_current_folder_may_have_a_package_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders named `compose` are common where Docker is used."""
    (tmp_path / "compose").mkdir()
    (tmp_path / "compose" / "__init__.py").write_text("raise ImportError('not the package of Ensayo')")
    monkeypatch.chdir(tmp_path)

    assert run_host_program(["echo", "started"]).stdout == "started\n"


def test_the_program_has_no_input() -> None:
    """A program that asks a question must not wait for ever."""
    assert run_host_program(["cat"], timeout_s=30).stdout == ""


def test_a_missing_program_is_an_error_of_the_program() -> None:
    finished = run_host_program(["no-such-program"])

    assert finished.returncode
    assert (
        finished.stderr.splitlines()[-1] == "FileNotFoundError: [Errno 2] No such file or directory: 'no-such-program'"
    )


def test_no_process_of_a_program_outlives_a_killed_runner(runner: "subprocess.Popen[bytes]") -> None:
    """The build of an image takes minutes and starts many processes."""
    processes = list(descendant_pids(runner.pid))

    runner.kill()

    wait_until_empty(lambda: running(processes), EXIT_S)


def test_no_process_of_a_program_outlives_an_interrupted_runner(runner: "subprocess.Popen[bytes]") -> None:
    """Ctrl-C reaches only the runner."""
    processes = list(descendant_pids(runner.pid))

    runner.send_signal(signal.SIGINT)

    assert runner.wait(EXIT_S)
    wait_until_empty(lambda: running(processes), EXIT_S)


def test_a_program_that_takes_too_long_is_killed_with_its_processes(tmp_path: Path) -> None:
    pid_file = tmp_path / "pids"
    command = ["sh", "-c", f"sleep 60 & echo $$ $! > {pid_file}; wait"]

    with pytest.raises(subprocess.TimeoutExpired):
        run_host_program(command, timeout_s=1.0)

    processes = [int(pid) for pid in pid_file.read_text().split()]
    wait_until_empty(lambda: running(processes), EXIT_S)
