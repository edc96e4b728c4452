"""Atomic replacement of a file: after a crash at any time, a reader finds the previous file or the whole new one."""

import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from services.checkpoints.checkpoint_error import CheckpointError
from services.runtime.transport import Buffer
from services.schema.errors import os_error_cause

TEMPORARY_SUFFIX = ".tmp"  # of a file that is being written; a file has one writer at a time
FULL_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT)

# Writes some bytes to the open file of a descriptor, and returns their number, as `os.write` does.
WriteBytes: TypeAlias = Callable[[int, memoryview], int]


def write_file_atomically(
    path: Path,
    parts: Iterable[Buffer],
    total_bytes: int,
    *,
    waits_for_disk: bool = True,
    write: WriteBytes | None = None,
) -> None:
    """Write a file of `total_bytes` bytes under a temporary name in its folder, and rename it.

    With `waits_for_disk`, the file and its new name are on the storage device when this function returns. Without, a
    crash of the host may leave a damaged file. `write` writes to the open file; None: `os.write`.

    Raises:
        CheckpointError: the file can't be written. The temporary file is removed, and an earlier file is unchanged.
    """
    temporary_path = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        try:
            _write_new_file(temporary_path, parts, write or os.write, waits_for_disk=waits_for_disk)
            temporary_path.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary_path.unlink(missing_ok=True)
            raise
        if waits_for_disk:
            synchronise_folder(path.parent)
    except OSError as error:
        raise CheckpointError(path, _explain_write_error(error, path, total_bytes)) from error


def synchronise_folder(folder: Path) -> None:
    """Wait until the names of the files in a folder are on the storage device."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_new_file(path: Path, parts: Iterable[Buffer], write: WriteBytes, *, waits_for_disk: bool) -> None:
    """Write a file; a symbolic link of this name is not followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o666)  # less the process's umask
    try:
        for part in parts:
            _write_all(descriptor, memoryview(part).cast("B"), write)
        if waits_for_disk:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: memoryview, write: WriteBytes) -> None:
    """Write all bytes; one call of the operating system may write a part."""
    while data:
        data = data[write(descriptor, data) :]


def _explain_write_error(error: OSError, path: Path, total_bytes: int) -> str:
    """Return why a file was not written, called after the temporary file has been removed."""
    cause = f"can't be written: {os_error_cause(error)}"
    if error.errno not in FULL_DISK_ERRORS:
        return cause
    size = f"the file needs {total_bytes:,} bytes"
    with suppress(OSError):
        file_system = os.statvfs(path.parent)
        missing = total_bytes - file_system.f_bavail * file_system.f_frsize
        if missing > 0:
            size += f", which is {missing:,} more than are free"
    return f"{cause}; {size}; earlier checkpoints are unchanged"
