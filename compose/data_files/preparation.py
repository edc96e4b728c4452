"""Preparation of datasets in files: the reader of each format, and the folders with prepared arrays.

A folder is named by a digest of the contents of the files and of the keys of the dataset. So it never becomes outdated,
and the original file is not needed again. It may be deleted while no run uses it.
"""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from pydantic import ValidationError

from compose.data_files.digests import digest_file_or_folder
from compose.data_files.readers.cifar10 import prepare_cifar10
from compose.data_files.readers.idx import prepare_idx
from compose.data_files.readers.images import prepare_images
from compose.data_files.readers.npz import prepare_npz
from compose.data_files.readers.tables import prepare_csv, prepare_parquet
from compose.data_files.readers.text import prepare_text
from compose.host.host_facts import user_cache_folder
from compose.own_code.dataset_preparation import prepare_own_dataset
from services.learning.datasets import PreparedDataset
from services.learning.datasets.files import DataFileError, UserDataset
from services.learning.datasets.prepared import PreparedArrays
from services.schema.errors import HostError, os_error_cause
from services.schema.message_paths import path_for_messages

FORMAT = 1  # of the folders; a new number makes all older folders unused
LEFTOVER_AGE_S = 3600.0  # wall seconds
# Kind of a dataset -> function that reads its files, writes the arrays to a folder, and describes them.
PREPARERS: Mapping[str, Callable[[Any, Path], PreparedArrays]] = {
    "idx": prepare_idx,
    "cifar10": prepare_cifar10,
    "npz": prepare_npz,
    "csv": prepare_csv,
    "parquet": prepare_parquet,
    "text": prepare_text,
    "images": prepare_images,
    "python": prepare_own_dataset,
    "torch": prepare_own_dataset,
}


def prepare_data(dataset: UserDataset) -> PreparedDataset:
    """Return the prepared samples of a dataset; read its files unless samples of the same content are in the cache.

    Raises:
        DataFileError: a file is missing, damaged, or does not fit the keys of the dataset.
        HostError: the prepared arrays can't be written.
    """
    folder = prepared_data_folder() / _name_of_folder(dataset)
    arrays = _read_description(folder) or _prepare_folder(dataset, folder)
    return PreparedDataset(source=dataset, folder=str(folder), arrays=arrays)


def prepared_data_folder() -> Path:
    """Return the folder of all prepared datasets of this user."""
    return user_cache_folder().resolve() / "data"


def _name_of_folder(dataset: UserDataset) -> str:
    """Return the name of the folder of a dataset: a digest of the contents of its files and of its keys."""
    text = dataset.without_paths().model_dump_json()
    return sha256(f"{FORMAT} {text}".encode()).hexdigest()


def _read_description(folder: Path) -> PreparedArrays | None:
    """Return the description of a prepared folder; None if there is no complete one."""
    try:
        return PreparedArrays.model_validate_json((folder / "prepared.json").read_bytes())
    except (OSError, ValidationError):
        return None


def _prepare_folder(dataset: UserDataset, folder: Path) -> PreparedArrays:
    """Read the files of a dataset, write the arrays to a temporary folder, and rename it to `folder`."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _remove_leftovers(folder.parent)
        temporary = Path(mkdtemp(prefix=f".partial-{os.getpid()}-", dir=folder.parent))
    except OSError as error:
        raise _make_write_error(folder.parent, error) from error
    try:
        arrays = PREPARERS[dataset.kind](dataset, temporary)
        _check_unchanged(dataset)
        (temporary / "prepared.json").write_text(arrays.model_dump_json(indent=1), encoding="utf-8")
        _make_readable(temporary)
        _replace_folder(temporary, folder)
    except OSError as error:  # of writing: readers convert errors of reading
        raise _make_write_error(temporary, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return arrays


def _make_write_error(folder: Path, error: OSError) -> HostError:
    return HostError(
        f"{folder}: prepared data can't be written: {os_error_cause(error)}; free disk space, or name another folder "
        "in XDG_CACHE_HOME"
    )


def _check_unchanged(dataset: UserDataset) -> None:
    """Raise DataFileError if a file has changed since its digest was computed."""
    for key, file in dataset.data_files():
        path = Path(file.file)
        if digest_file_or_folder(key, path) != file.sha256:
            message = f"{path_for_messages(path)}: the file has changed since the scenario was loaded; load it again"
            raise DataFileError(key, message)


def _make_readable(folder: Path) -> None:
    """Let the unprivileged user of containers read the arrays; other users can't enter the folder above."""
    for path in folder.iterdir():
        path.chmod(0o644)
    folder.chmod(0o755)


def _replace_folder(temporary: Path, folder: Path) -> None:
    """Rename a complete temporary folder, unless another process has just prepared the same data."""
    if folder.exists() and _read_description(folder) is None:
        shutil.rmtree(folder)  # incomplete, for example because a file was deleted
    try:
        temporary.rename(folder)
    except OSError:
        if _read_description(folder) is None:
            raise


def _remove_leftovers(data_folder: Path) -> None:
    """Remove temporary folders of processes that were killed; processes of other hosts may use the same folder."""
    for path in data_folder.glob(".partial-*-*"):
        is_process_gone = not Path("/proc", path.name.split("-")[1]).exists()
        if is_process_gone and time.time() - path.stat().st_mtime > LEFTOVER_AGE_S:
            shutil.rmtree(path, ignore_errors=True)
