"""Exit codes of the process of a node, which engines read."""

from collections.abc import Sequence

from services.schema.errors import is_caused_by_eviction

EXIT_FAILED = 4  # an error that another node may have caused
EXIT_EVICTED = 5  # the coordinator has considered the node lost, and training goes on without it


def exit_code_of(errors: Sequence[Exception]) -> int:
    """Return the exit code of a node that has ended with these errors.

    An error that no lost node explains counts more than an eviction: the trial must fail with it.
    """
    if not errors:
        return 0
    return EXIT_EVICTED if is_caused_by_eviction(ExceptionGroup("", errors)) else EXIT_FAILED
