"""A single reference to data files or to code of the user: its absolute path and its digest."""

from pathlib import Path
from typing import Any

from compose.data_files.digests import digest_file_or_folder
from compose.own_code.copies import copy_to_cache, find_copy
from compose.own_code.files import digest_code, read_code_files
from services.learning.datasets.files import DataFileError
from services.learning.own_code import OwnCodeError
from services.learning.own_code.user_code import split_reference
from services.schema.message_paths import path_for_messages


def resolve_data_file(key: str, reference: Any, folder: Path) -> Any:
    """Return a reference with absolute path and digest; a value of a wrong type is returned unchanged.

    If the reference has a digest and the file is missing, the data may have been prepared before.
    """
    declared = {"file": reference} if isinstance(reference, str) and reference else reference
    if not isinstance(declared, dict) or not isinstance(declared.get("file"), str):
        return reference
    if "\0" in declared["file"]:
        raise DataFileError(key, f"{declared['file']!r} is not a path: it contains the character NUL")
    path, declared_digest = Path(folder, declared["file"]).resolve(), declared.get("sha256")
    if declared_digest is not None and not path.exists():
        return declared | {"file": str(path)}
    digest = digest_file_or_folder(key, path)
    if declared_digest not in (None, digest):
        message = (
            f"{path_for_messages(path)}: the content has the digest {digest}, not {declared_digest}; restore the file, "
            "or remove sha256"
        )
        raise DataFileError(key, message)
    return declared | {"file": str(path), "sha256": digest}


def resolve_data_files(key: str, references: Any, folder: Path) -> Any:
    """Return a dict of references with absolute paths and digests; a value of a wrong type is returned unchanged."""
    if not isinstance(references, dict):
        return references
    return {name: resolve_data_file(key, reference, folder) for name, reference in references.items()}


def resolve_code(key: str, reference: Any, folder: Path) -> Any:
    """Return a reference to code with absolute path, digest, and the copy of the code in the cache.

    A value of a wrong type is returned unchanged. If the reference has a digest, and its code is in the cache, this
    code is used, even if the user's file has changed since: so the code of an earlier run can be run again.
    """
    declared = split_reference(reference) if isinstance(reference, str) else reference
    if not isinstance(declared, dict) or not isinstance(declared.get("file"), str):
        return reference
    path, declared_digest = Path(folder, declared["file"]).resolve(), declared.get("sha256")
    if isinstance(declared_digest, str) and (copy := find_copy(declared_digest)):
        return declared | {"file": str(path), "folder": str(copy)}
    if not path.is_file():
        raise OwnCodeError(
            (key,),
            f"{path_for_messages(path)}: file not found; write FILE:NAME, with a path relative to the scenario file",
        )
    contents = read_code_files(key, path.parent)
    digest = digest_code(contents)
    if declared_digest not in (None, digest):
        message = (
            f"{path_for_messages(path.parent)}: the Python files in this folder have the digest {digest}, not "
            f"{declared_digest}; restore the files, or remove sha256"
        )
        raise OwnCodeError((key,), message)
    return declared | {"file": str(path), "sha256": digest, "folder": str(copy_to_cache(contents))}
