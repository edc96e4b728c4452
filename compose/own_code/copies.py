"""Read-only copies of the user's code: in the cache, from which nodes import it, and in run folders.

A folder in the cache is named by the digest of the code. So it never becomes outdated. It may be deleted while no run
uses it.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp

from compose.host.host_facts import user_cache_folder
from compose.own_code.files import digest_code, read_code_files
from services.learning.own_code import OwnCodeError
from services.schema.errors import HostError, os_error_cause

FILE_MODE, FOLDER_MODE = 0o444, 0o755  # readable for the unprivileged user of containers; the user can delete folders


def code_copies_folder() -> Path:
    """Return the folder of all copies of this user's code."""
    return user_cache_folder().resolve() / "code"


def find_copy(digest: str) -> Path | None:
    """Return the folder with the code of a digest; None if there is no complete copy."""
    folder = code_copies_folder() / digest
    try:
        return folder if digest_code(read_code_files("module", folder)) == digest else None
    except OwnCodeError:
        return None


def copy_to_cache(contents: Mapping[PurePosixPath, bytes]) -> Path:
    """Return a folder in the cache with these files, read-only; write it unless it exists.

    Raises:
        HostError: the files can't be written.
    """
    digest = digest_code(contents)
    if folder := find_copy(digest):
        return folder
    folder = code_copies_folder() / digest
    try:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = Path(mkdtemp(prefix=f".partial-{os.getpid()}-", dir=folder.parent))
        try:
            _write_files(contents, temporary)
            _replace_folder(temporary, folder, digest)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise HostError(
            f"{folder}: the copy of your code can't be written: {os_error_cause(error)}; free disk space, or name "
            "another folder in XDG_CACHE_HOME"
        ) from error
    return folder


def copy_to_run_folder(code_folder: Path, run_folder: Path) -> None:
    """Copy code of the user to the folder `code/<digest>` of a run, which then is a complete record.

    Args:
        code_folder: folder in the cache.
        run_folder: folder of the run.

    Raises:
        OSError: the files can't be written.
    """
    if (target := run_folder / "code" / code_folder.name).exists():
        return
    target.mkdir(parents=True)
    _write_files(read_code_files("module", code_folder), target)


def restore_from_run_folder(run_folder: Path) -> None:
    """Copy the code in the folder of a run to the cache, where it may have been deleted.

    Raises:
        HostError: the files can't be written.
    """
    for folder in sorted((run_folder / "code").glob("*")):
        copy_to_cache(read_code_files("module", folder))


def _write_files(contents: Mapping[PurePosixPath, bytes], folder: Path) -> None:
    """Write read-only files to an empty folder."""
    for path, content in contents.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(FILE_MODE)
    for parent, _, _ in os.walk(folder, topdown=False):
        Path(parent).chmod(FOLDER_MODE)


def _replace_folder(temporary: Path, folder: Path, digest: str) -> None:
    """Rename a complete temporary folder, unless another process has just written the same code."""
    if folder.exists() and find_copy(digest) is None:
        shutil.rmtree(folder)  # incomplete, for example because a file was deleted
    try:
        temporary.rename(folder)
    except OSError:
        if find_copy(digest) is None:
            raise
