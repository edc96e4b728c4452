"""Texts about the end of a command."""

import pytest

from services.commands.process_end import describe_process_end, has_lost_connection
from services.scenario.commands.command_workload import CommandWorkload

WORKLOAD = CommandWorkload(command=("python", "train.py"))


@pytest.mark.parametrize(
    ("exit_code", "steps", "lines", "text"),
    [
        (0, None, ["ready"], "ended with exit code 0 without a process group, while another rank waited for it"),
        (0, 12, [], "ended with exit code 0 after 12 steps, while another rank waited for it"),
        (3, 12, ["first", "last"], "ended with exit code 3; its last line is: last"),
        (-6, None, [], "was ended by signal 6 without any output"),
    ],
)
def test_the_end_of_a_command_is_described(exit_code: int, steps: int | None, lines: list[str], text: str) -> None:
    """The reason of a failed trial is all that many users read."""
    description = describe_process_end("worker-1", exit_code, steps, lines, WORKLOAD)

    assert description.startswith(f"the command of worker-1 {text}")


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        (
            "OSError: [Errno 30] Read-only file system: '/opt/new'",
            "write below the current folder, into a new sub-folder, or",
        ),
        (
            "RuntimeError: File checkpoints/1.pt cannot be opened.",
            "write below the current folder, into a new sub-folder, or",
        ),
        ("ModuleNotFoundError: No module named 'torch'", "install torch in "),
        ("PermissionError: [Errno 13] Permission denied: 'data'", ""),
    ],
)
def test_a_known_error_has_a_remedy(line: str, remedy: str) -> None:
    """Other errors have none: a wrong remedy costs more time than none."""
    _, _, advice = describe_process_end("worker-0", 1, 0, [line], WORKLOAD).partition(f"its last line is: {line}")

    assert advice.startswith(f"; {remedy}" if remedy else "")
    assert bool(advice) == bool(remedy)


@pytest.mark.parametrize(
    ("line", "is_lost"),
    [
        ("RuntimeError: [../tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4711", True),
        ("torch.distributed.DistNetworkError: The client socket has timed out", True),
        ("torch.distributed.DistBackendError: allreduce of process group 0 on worker-0 failed: no message", True),
        ("ValueError: no more samples", False),
    ],
)
def test_a_lost_connection_is_recognised(line: str, is_lost: bool) -> None:
    """Such a process has ended because of another one, which is named first."""
    assert has_lost_connection(["step 11", line]) == is_lost
