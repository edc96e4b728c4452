"""Paths of data files: checks before a file is opened, and paths in messages."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from services.learning.datasets.files import DataFileError
from services.schema.errors import os_error_cause
from services.schema.message_paths import path_for_messages


@contextmanager
def explain_read_errors(key: str, path: Path) -> Iterator[None]:
    """Convert errors of the operating system.

    Raises:
        DataFileError: the file can't be read; the message states the cause.
    """
    try:
        yield
    except OSError as error:
        message = f"{path_for_messages(path)}: the file can't be read: {os_error_cause(error)}"
        raise DataFileError(key, message) from error


def check_is_file(key: str, path: Path) -> None:
    """Check that there is a regular file at `path`.

    Raises:
        DataFileError: there is no file, or another thing, such as a folder or a pipe.
    """
    if not S_ISREG(_mode_of(key, path)):
        raise DataFileError(key, f"{path_for_messages(path)}: not a regular file; write the path of a file")


def is_folder(key: str, path: Path) -> bool:
    """Return whether there is a folder at `path`.

    Raises:
        DataFileError: there is nothing.
    """
    return S_ISDIR(_mode_of(key, path))


def _mode_of(key: str, path: Path) -> int:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        raise DataFileError(key, f"{path_for_messages(path)}: file not found") from None
    except OSError as error:  # such as a loop of symbolic links
        message = f"{path_for_messages(path)}: the file can't be read: {os_error_cause(error)}"
        raise DataFileError(key, message) from error


def list_folder_files(key: str, folder: Path) -> list[Path]:
    """Return all regular files in a folder and its sub-folders, in the order of their relative paths.

    Files and folders whose names begin with a dot are left out.

    Raises:
        DataFileError: a symbolic link leads out of the folder, or an entry is neither file nor folder.
    """
    found = []
    for path in sorted(folder.rglob("*"), key=lambda each: each.relative_to(folder).parts):
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
            message = (
                f"{path_for_messages(folder)}/{path.relative_to(folder)}: a symbolic link to {path.resolve()}, outside "
                "of the folder; copy the file into the folder"
            )
            raise DataFileError(key, message)
        if not is_folder(key, path):
            check_is_file(key, path)
            found.append(path)
    return found
