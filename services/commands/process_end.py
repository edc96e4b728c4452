"""Texts about the end of a command on a node."""

import re
from collections.abc import Sequence

from services.commands.missing_module import advise_on_missing_module
from services.scenario.commands.command_workload import CommandWorkload

LOST_CONNECTION = re.compile(  # texts of gloo, of PyTorch's store, and of Ensayo's process group
    r"connect|closed by peer|broken pipe|timed out|DistNetworkError|DistStoreError|worker-\d+", re.IGNORECASE
)
READ_ONLY = re.compile(r"Read-only file system|RuntimeError: File \S+ cannot be opened")  # of Python, of torch.save


def describe_process_end(
    node_name: str, exit_code: int, steps: int | None, last_lines: Sequence[str], workload: CommandWorkload
) -> str:
    """Return how the command of a node has ended, for the error of the trial, with a remedy if there is one.

    Args:
        node_name: name of the node.
        exit_code: exit code of the command; a signal has a negative code.
        steps: steps that the metering has counted; None if the command has made no process group.
        last_lines: last lines of its output.
        workload: the command.
    """
    if exit_code == 0:
        done = "without a process group" if steps is None else f"after {steps} steps"
        return (
            f"the command of {node_name} ended with exit code 0 {done}, while another rank waited for it; all ranks "
            "must make the same steps and collectives"
        )
    how = f"was ended by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
    last_line = last_lines[-1] if last_lines else ""
    output = f"; its last line is: {last_line}" if last_line else " without any output"
    advice = advise_on_missing_module(last_line, workload) or advise_on_read_only_file(last_line)
    return f"the command of {node_name} {how}{output}{'; ' * bool(advice)}{advice}"


def has_lost_connection(last_lines: Sequence[str]) -> bool:
    """Return whether the end of a command's output shows that it could not reach another rank."""
    return any(map(LOST_CONNECTION.search, last_lines))


def advise_on_read_only_file(error_text: str) -> str:
    """Return where a command can write, for an error of a file that it can't write; empty for other errors."""
    if READ_ONLY.search(error_text) is None:
        return ""
    return (
        "write below the current folder, into a new sub-folder, or below /tmp: in containers, all other files are "
        "read-only, also those in sub-folders of the current folder that are links to workload.folder"
    )
