"""Which exit code tells a script what happened?"""

from enum import IntEnum

from services.schema.errors import EnsayoError, HostError, UserError


class Exit(IntEnum):
    """Exit codes of the command line; click uses the same 2 for its own complaints."""

    OK = 0  # all trials succeeded, none is invalid
    REFUSED = 2  # the file, the arguments or the host do not allow it; nothing was started
    INVALID = 3  # all is finished, but a trial cannot be believed
    FAILED = 4  # a trial failed or was aborted
    INTERRUPTED = 130  # as shells have it: 128 + SIGINT


def exit_code(error: EnsayoError) -> Exit:
    """The code of an error that ended a command."""
    return Exit.REFUSED if isinstance(error, UserError | HostError) else Exit.FAILED
