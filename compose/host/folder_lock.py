"""Lock of a folder in the user's cache, against two processes that fill it at the same time."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from services.schema.errors import HostError, os_error_cause


@contextmanager
def lock_folder(folder: Path, content: str, report: Callable[[str], None]) -> Iterator[Path]:
    """Create a folder, and lock it against other processes that build its content.

    Args:
        folder: gets a file `lock`, which stays there.
        content: noun for messages, such as "node image".
        report: is called with a message before this process waits for another one.

    Raises:
        HostError: the folder can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock_file = (folder / "lock").open("w")
    except OSError as error:
        raise HostError(
            f"{folder}: the folder for the {content} can't be written: {os_error_cause(error)}; make it writable, or "
            "name another folder in XDG_CACHE_HOME"
        ) from error
    with lock_file:
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"{content}: waiting for another build")
            fcntl.flock(lock_file, fcntl.LOCK_EX)
        yield folder
