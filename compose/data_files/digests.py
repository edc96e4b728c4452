"""Digests of the content of data files and folders."""

import hashlib
from pathlib import Path

from compose.data_files.limits import MAX_FOLDER_FILES
from compose.data_files.paths import check_is_file, explain_read_errors, is_folder, list_folder_files
from services.learning.datasets.files import DataFileError
from services.schema.message_paths import path_for_messages


def digest_file_or_folder(key: str, path: Path) -> str:
    """Return the SHA-256 digest of the content of a file, or of names and contents of all files of a folder.

    Args:
        key: key of the dataset that names the file, for errors.
        path: path of the file or folder.

    Raises:
        DataFileError: there is no such file or folder, or a part of it can't be read.
    """
    with explain_read_errors(key, path):
        return _digest_folder(key, path) if is_folder(key, path) else _digest_file(key, path)


def _digest_file(key: str, path: Path) -> str:
    check_is_file(key, path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_folder(key: str, folder: Path) -> str:
    files = list_folder_files(key, folder)
    if len(files) > MAX_FOLDER_FILES:
        message = f"{path_for_messages(folder)}: {len(files):,} files are more than {MAX_FOLDER_FILES:,}, the limit"
        raise DataFileError(key, message)
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(folder)}\0{_digest_file(key, path)}\n".encode())
    return digest.hexdigest()
