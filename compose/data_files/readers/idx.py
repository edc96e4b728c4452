"""Reader of idx files, the format of MNIST."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from compose.data_files.labels import check_labels, count_classes
from compose.data_files.paths import check_is_file, explain_read_errors
from compose.data_files.samples import (
    CHUNK_BYTES,
    FileSamples,
    SampleScale,
    check_prepared_size,
    prepare_samples,
    rows_per_chunk,
)
from services.learning.datasets.files import DataFile, DataFileError, IdxFile
from services.learning.datasets.prepared import PreparedArrays
from services.learning.layout import Shape
from services.schema.arrays import HostArray
from services.schema.message_paths import path_for_messages

NUMBER_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MAX_AXES = 4
GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class IdxHeader:
    """Type and shape of the array in an idx file."""

    number_type: np.dtype[np.generic]
    shape: Shape

    @property
    def size_bytes(self) -> int:
        """Size of the header in bytes."""
        return 4 + 4 * len(self.shape)

    @property
    def array_bytes(self) -> int:
        """Size of the array in bytes."""
        return prod(self.shape) * self.number_type.itemsize


def prepare_idx(dataset: IdxFile, folder: Path) -> PreparedArrays:
    """Read and check samples and labels in idx files, and write the arrays of the dataset to `folder`."""
    train = _read_samples("path", dataset.path, "labels", dataset.labels)
    labels_name = path_for_messages(Path(dataset.labels.file))
    class_count = count_classes("labels", labels_name, train.targets, dataset.classes)
    test = None
    if dataset.test_path and dataset.test_labels:
        test = _read_samples("test_path", dataset.test_path, "test_labels", dataset.test_labels)
        _check_equal_samples(dataset, train, test)
        name = path_for_messages(Path(dataset.test_labels.file))
        check_labels("test_labels", name, test.targets, class_count)
    scale: SampleScale = "pixels" if train.sample_type == np.dtype(np.uint8) else "as_stored"
    return prepare_samples(dataset, folder, train, test, class_count=class_count, scale=scale)


def _read_samples(path_key: str, samples_file: DataFile, labels_key: str, labels_file: DataFile) -> FileSamples:
    """Return the samples of one idx file with the labels of another."""
    path, labels = Path(samples_file.file), _read_labels(labels_key, Path(labels_file.file))
    with _open_idx(path_key, path) as (_, header):
        pass
    if len(header.shape) == 1:
        message = f"{path_for_messages(path)}: the array has one axis; samples have 2 to {MAX_AXES} axes; labels have 1"
        raise DataFileError(path_key, message)
    if header.shape[0] != len(labels):
        message = (
            f"{path_for_messages(Path(labels_file.file))}: {len(labels)} labels, but {path_for_messages(path)} has "
            f"{header.shape[0]} samples"
        )
        raise DataFileError(labels_key, message)
    height_and_width = 2
    is_grey_image = len(header.shape) == 1 + height_and_width
    shape = (1, *header.shape[1:]) if is_grey_image else header.shape[1:]
    number_type = header.number_type.newbyteorder("=")
    return FileSamples(shape, number_type, labels, lambda: _read_rows(path_key, path, shape))


def _read_rows(key: str, path: Path, sample_shape: Shape) -> Iterator[HostArray]:
    """Yield the samples of an idx file in chunks; numbers that are not finite are errors."""
    with _open_idx(key, path) as (file, header):
        sample_bytes = header.array_bytes // header.shape[0]
        size = rows_per_chunk(sample_bytes)
        for start in range(0, header.shape[0], size):
            count = min(size, header.shape[0] - start)
            content = _read_exactly(key, path, file, header, start * sample_bytes, count * sample_bytes)
            rows = np.frombuffer(content, header.number_type).reshape(count, *sample_shape)
            if not np.isfinite(rows).all():
                sample = start + int(np.flatnonzero(~np.isfinite(rows.reshape(count, -1)).all(axis=1))[0])
                message = f"{path_for_messages(path)}: sample {sample} has a number that is not finite"
                raise DataFileError(key, message)
            yield rows
        _check_is_at_end(key, path, file, header)


def _read_labels(key: str, path: Path) -> HostArray:
    """Return the labels in an idx file."""
    with _open_idx(key, path) as (file, header):
        if len(header.shape) != 1 or header.number_type.kind == "f":
            message = (
                f"{path_for_messages(path)}: labels are whole numbers in an array with one axis, not "
                f"{header.number_type.name} with {len(header.shape)} axes"
            )
            raise DataFileError(key, message)
        content = _read_exactly(key, path, file, header, 0, header.array_bytes)
        _check_is_at_end(key, path, file, header)
    return np.frombuffer(content, header.number_type).astype(np.int64)


def _check_equal_samples(dataset: IdxFile, train: FileSamples, test: FileSamples) -> None:
    """Raise DataFileError if training and test samples differ in shape or type."""
    if (train.sample_shape, train.sample_type) != (test.sample_shape, test.sample_type):
        name = path_for_messages(Path(dataset.test_path.file if dataset.test_path else ""))
        message = (
            f"{name}: a sample has the shape {test.sample_shape} and the type {test.sample_type}; samples of path have "
            f"{train.sample_shape} and {train.sample_type}"
        )
        raise DataFileError("test_path", message)


@contextmanager
def _open_idx(key: str, path: Path) -> Iterator[tuple[BinaryIO, IdxHeader]]:
    """Open an idx file, decompress it if necessary, and read its header.

    Raises:
        DataFileError: the file can't be read, is damaged, or is no idx file.
    """
    name = path_for_messages(path)
    with explain_read_errors(key, path):
        check_is_file(key, path)
        with path.open("rb") as raw:
            is_compressed = raw.read(2) == GZIP_MAGIC
            raw.seek(0)
            file = cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if is_compressed else raw
            try:
                header = _read_header(key, path, file)
                if not is_compressed and header.size_bytes + header.array_bytes > path.stat().st_size:
                    message = _short_file_message(name, header, path.stat().st_size - header.size_bytes)
                    raise DataFileError(key, message)
                yield file, header
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise DataFileError(key, f"{name}: the gzip data are damaged: {error}") from error


def _read_header(key: str, path: Path, file: BinaryIO) -> IdxHeader:
    name = path_for_messages(path)
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in NUMBER_TYPES or not 1 <= magic[3] <= MAX_AXES:  # noqa: PLR2004 - length of the magic number
        types = ", ".join(f"0x{code:02x}" for code in NUMBER_TYPES)
        message = (
            f"{name}: not an idx file: the first bytes are {magic.hex(' ') or 'missing'}; allowed are 00 00, a type "
            f"({types}), and 1 to {MAX_AXES} axes"
        )
        raise DataFileError(key, message)
    sizes = file.read(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise DataFileError(key, f"{name}: the file ends inside its header, at byte {4 + len(sizes)}")
    header = IdxHeader(np.dtype(NUMBER_TYPES[magic[2]]), tuple(np.frombuffer(sizes, ">u4").tolist()))
    if not all(header.shape):
        raise DataFileError(key, f"{name}: the header declares the shape {header.shape}, which has no elements")
    check_prepared_size(key, name, header.array_bytes)
    return header


def _read_exactly(key: str, path: Path, file: BinaryIO, header: IdxHeader, bytes_before: int, byte_count: int) -> bytes:
    """Return the next bytes of an array, of which `bytes_before` are read; raise DataFileError if there are fewer."""
    content = _read_in_chunks(file, byte_count)
    if len(content) < byte_count:
        found = bytes_before + len(content)
        raise DataFileError(key, _short_file_message(path_for_messages(path), header, found))
    return content


def _read_in_chunks(file: BinaryIO, byte_count: int) -> bytes:
    """Return the next bytes of a file, or all that are left.

    A read from a gzip file allocates all requested bytes first, so each read requests at most a chunk.
    """
    chunks: list[bytes] = []
    while byte_count and (chunk := file.read(min(byte_count, CHUNK_BYTES))):
        chunks.append(chunk)
        byte_count -= len(chunk)
    return b"".join(chunks)


def _short_file_message(file_name: str, header: IdxHeader, found_bytes: int) -> str:
    return (
        f"{file_name}: the header declares the shape {header.shape}, which needs {header.array_bytes:,} bytes after "
        f"byte {header.size_bytes}, but the file has only {found_bytes:,}"
    )


def _check_is_at_end(key: str, path: Path, file: BinaryIO, header: IdxHeader) -> None:
    if file.read(1):
        message = (
            f"{path_for_messages(path)}: there are more bytes after byte {header.size_bytes + header.array_bytes:,}, "
            f"where the array of shape {header.shape} ends"
        )
        raise DataFileError(key, message)
