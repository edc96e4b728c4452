"""Exit codes of the command line."""

from enum import IntEnum

from services.schema.errors import EnsayoError, HostError, UserError


class ExitCode(IntEnum):
    """Exit codes of the command line.

    Click, which parses the arguments, also exits with 2 when it rejects arguments.
    """

    OK = 0  # all trials succeeded, and no verdict is invalid
    NOT_STARTED = 2  # the scenario, the arguments or the host do not allow the command; nothing was started
    INVALID = 3  # all trials finished, but the verdict of at least one is invalid
    FAILED = 4  # a trial failed, was aborted or diverged, or the files of a run could not be written
    INTERRUPTED = 130  # as in shells: 128 + SIGINT


def exit_code_of_error(error: EnsayoError) -> ExitCode:
    """Return the exit code of a command that ended with an error."""
    return ExitCode.NOT_STARTED if isinstance(error, UserError | HostError) else ExitCode.FAILED
