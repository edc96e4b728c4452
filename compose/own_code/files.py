"""The Python files in the folder of a user's model, and their digest."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from services.learning.own_code import OwnCodeError
from services.schema.errors import os_error_cause
from services.schema.message_paths import path_for_messages

MAX_FILES, MAX_BYTES = 1_000, 5_000_000
SKIPPED_FOLDERS = frozenset({"__pycache__", "runs", "node_modules", "site-packages"})
ENVIRONMENT_MARK = "pyvenv.cfg"  # file in every virtual environment


def read_code_files(key: str, folder: Path) -> dict[PurePosixPath, bytes]:
    """Return the content of all Python files in a folder and its sub-folders, by relative path, in order of the paths.

    Hidden folders, virtual environments and the folders SKIPPED_FOLDERS are left out.

    Args:
        key: key of the model that names the code, for errors.
        folder: folder of the user's file.

    Raises:
        OwnCodeError: files can't be read, or are too many or too large.
    """
    contents: dict[PurePosixPath, bytes] = {}
    size = 0
    for path in _find_python_files(folder):
        try:
            contents[PurePosixPath(path.relative_to(folder))] = content = path.read_bytes()
        except OSError as error:
            message = f"{path_for_messages(path)}: the file can't be read: {os_error_cause(error)}"
            raise OwnCodeError((key,), message) from error
        size += len(content)
        if len(contents) > MAX_FILES or size > MAX_BYTES:
            message = (
                f"{path_for_messages(folder)}: this folder has more than {MAX_FILES:,} Python files or "
                f"{MAX_BYTES:,} bytes of them, and all of them are copied; put the model into a folder of its own"
            )
            raise OwnCodeError((key,), message)
    return dict(sorted(contents.items()))


def digest_code(contents: Mapping[PurePosixPath, bytes]) -> str:
    """Return the SHA-256 digest of relative paths and contents of files."""
    digest = hashlib.sha256()
    for path, content in contents.items():
        digest.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()


def _find_python_files(folder: Path) -> Iterator[Path]:
    for parent, folder_names, file_names in os.walk(folder):
        folder_names[:] = sorted(name for name in folder_names if not _is_skipped(Path(parent, name)))
        yield from (Path(parent, name) for name in file_names if name.endswith(".py"))


def _is_skipped(folder: Path) -> bool:
    is_environment = (folder / ENVIRONMENT_MARK).exists()
    return folder.name.startswith(".") or folder.name in SKIPPED_FOLDERS or is_environment
