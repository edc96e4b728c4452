"""Reader of arrays in npz files of NumPy."""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np

from compose.data_files.labels import check_labels, count_classes
from compose.data_files.limits import MAX_ARRAY_HEADER_BYTES
from compose.data_files.paths import check_is_file, explain_read_errors
from compose.data_files.samples import FileSamples, check_prepared_size, prepare_samples, rows_per_chunk
from services.learning.datasets.files import DataFileError, NpzFile
from services.learning.datasets.prepared import PreparedArrays
from services.learning.layout import Shape
from services.schema.arrays import HostArray
from services.schema.message_paths import path_for_messages

ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, UnicodeDecodeError)
NUMBER_KINDS = "buif"  # kinds of NumPy's types: booleans, integers and floating-point numbers


@dataclass(frozen=True)
class NpzArray:
    """Array in an npz file."""

    key: str  # of the dataset, for errors
    path: Path
    name: str
    shape: Shape
    number_type: np.dtype[Any]

    @property
    def description(self) -> str:
        """File and name of the array, for messages."""
        return f"{path_for_messages(self.path)}: array {self.name}"

    def read_rows(self) -> Iterator[HostArray]:
        """Yield the rows of the array in chunks; numbers that are not finite are errors."""
        row_bytes = prod(self.shape[1:]) * self.number_type.itemsize
        size = rows_per_chunk(row_bytes)
        with _open_array(self.key, self.path, self.name) as (file, _):
            for start in range(0, self.shape[0], size):
                count = min(size, self.shape[0] - start)
                content = file.read(count * row_bytes)
                if len(content) < count * row_bytes:
                    raise DataFileError(self.key, f"{self.description}: the data end in sample {start} or after it")
                rows = np.frombuffer(content, self.number_type).reshape(count, *self.shape[1:])
                if not np.isfinite(rows).all():
                    bad = np.flatnonzero(~np.isfinite(rows.reshape(count, -1)).all(axis=1))
                    message = f"{self.description}: sample {start + int(bad[0])} has a number that is not finite"
                    raise DataFileError(self.key, message)
                yield rows


def prepare_npz(dataset: NpzFile, folder: Path) -> PreparedArrays:
    """Read and check arrays in npz files, and write the arrays of the dataset to `folder`."""
    path = Path(dataset.path.file)
    train = _read_samples("path", path, dataset.x, dataset.y)
    name = f"{path_for_messages(path)}: array {dataset.y}"
    class_count = count_classes("path", name, train.targets, dataset.classes) if train.is_classification else None
    test = _read_test_samples(dataset)
    if test:
        _check_equal_samples(dataset, train, test)
        if class_count:
            check_labels("test_path", f"test array {dataset.test_y or dataset.y}", test.targets, class_count)
    return prepare_samples(dataset, folder, train, test, class_count=class_count, scale=dataset.scale)


def _read_test_samples(dataset: NpzFile) -> FileSamples | None:
    if dataset.test_path is None and dataset.test_x is None and dataset.test_y is None:
        return None
    path = Path((dataset.test_path or dataset.path).file)
    if dataset.test_path:
        return _read_samples("test_path", path, dataset.test_x or dataset.x, dataset.test_y or dataset.y)
    if dataset.test_x is None or dataset.test_y is None:
        missing = "test_x" if dataset.test_x is None else "test_y"
        raise DataFileError(missing, "test_x and test_y name two arrays of path; declare both or neither")
    return _read_samples("path", path, dataset.test_x, dataset.test_y)


def _check_equal_samples(dataset: NpzFile, train: FileSamples, test: FileSamples) -> None:
    """Raise DataFileError if training and test data differ in shapes or types."""
    for what, of_train, of_test in (
        ("a sample", (train.sample_shape, train.sample_type.name), (test.sample_shape, test.sample_type.name)),
        (
            "a target",
            (train.targets.shape[1:], train.targets.dtype.name),
            (test.targets.shape[1:], test.targets.dtype.name),
        ),
    ):
        if of_train != of_test:
            key, (shape, name) = "test_path" if dataset.test_path else "test_x", of_test
            message = (
                f"test data: {what} has the shape {shape} and the type {name}; in the training data, it has "
                f"{of_train[0]} and {of_train[1]}"
            )
            raise DataFileError(key, message)


def _read_samples(key: str, path: Path, x_name: str, y_name: str) -> FileSamples:
    """Return the samples in one array with the targets in another."""
    x, y = (_find_array(key, path, name) for name in (x_name, y_name))
    if len(x.shape) == 1:
        raise DataFileError(key, f"{x.description} has one axis; samples need two or more: (samples, ...)")
    if x.shape[0] != y.shape[0]:
        raise DataFileError(key, f"{y.description} has {y.shape[0]} targets for {x.shape[0]} samples in {x_name}")
    targets = np.concatenate([*y.read_rows()])
    if targets.ndim == 1 and targets.dtype.kind in "bui":
        return FileSamples(x.shape[1:], x.number_type, targets.astype(np.int64), x.read_rows)
    if targets.ndim > 2:  # noqa: PLR2004 - samples and outputs
        raise DataFileError(
            key, f"{y.description} has the shape {y.shape}; targets have (samples,) or (samples, outputs)"
        )
    return FileSamples(x.shape[1:], x.number_type, targets.reshape(len(targets), -1).astype(float), x.read_rows)


def _find_array(key: str, path: Path, name: str) -> NpzArray:
    """Return the description of an array, after a check of its type and size."""
    with _open_array(key, path, name) as (_, array):
        pass
    if array.number_type.kind not in NUMBER_KINDS:
        message = f"{array.description} has the type {array.number_type.name}; allowed are numbers and booleans"
        raise DataFileError(key, message)
    if not array.shape or not all(array.shape):
        raise DataFileError(key, f"{array.description} has the shape {array.shape} and no elements to train on")
    check_prepared_size(key, array.description, prod(array.shape) * array.number_type.itemsize)
    return array


@contextmanager
def _open_array(key: str, path: Path, name: str) -> Iterator[tuple[IO[bytes], NpzArray]]:
    """Open an array of an npz file at its first element.

    Objects of Python (pickle) are never read.

    Raises:
        DataFileError: the file can't be read, is damaged, or has no such array.
    """
    file_name = path_for_messages(path)
    with explain_read_errors(key, path):
        check_is_file(key, path)
        try:
            with zipfile.ZipFile(path) as archive:
                names = [member.removesuffix(".npy") for member in archive.namelist() if member.endswith(".npy")]
                if name not in names:
                    message = f"{file_name}: there is no array {name!r}; the file has {', '.join(names) or 'no arrays'}"
                    raise DataFileError(key, message)
                with archive.open(f"{name}.npy") as file:
                    yield file, _read_array_header(key, path, name, file)
        except ARCHIVE_ERRORS as error:
            raise DataFileError(key, f"{file_name}: not an npz file, or damaged: {error}") from error


def _read_array_header(key: str, path: Path, name: str, file: IO[bytes]) -> NpzArray:
    try:
        version = np.lib.format.read_magic(file)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, is_fortran_order, number_type = read_header[version](file, max_header_size=MAX_ARRAY_HEADER_BYTES)
    except (ValueError, KeyError, TokenError, SyntaxError, RecursionError) as error:
        message = f"{path_for_messages(path)}: array {name}: the header is damaged or not supported: {error}"
        raise DataFileError(key, message) from error
    if is_fortran_order and len(shape) > 1:
        message = (
            f"{path_for_messages(path)}: array {name} is stored in Fortran order, in which samples are not contiguous; "
            "save numpy.ascontiguousarray(array)"
        )
        raise DataFileError(key, message)
    return NpzArray(key, path, name, tuple(shape), number_type)
