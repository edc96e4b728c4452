"""Reader of the binary format of CIFAR-10.

A record has 3,073 bytes: the label, then 1,024 red, 1,024 green and 1,024 blue pixels, row by row.
"""

from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path

import numpy as np

from compose.data_files.labels import check_labels
from compose.data_files.paths import check_is_file, explain_read_errors, is_folder
from compose.data_files.samples import FileSamples, check_prepared_size, prepare_samples, rows_per_chunk
from services.learning.datasets.files import Cifar10File, DataFileError
from services.learning.datasets.prepared import PreparedArrays
from services.schema.arrays import HostArray
from services.schema.message_paths import path_for_messages

IMAGE_SHAPE, CLASSES = (3, 32, 32), 10
RECORD_BYTES = 1 + prod(IMAGE_SHAPE)
TRAIN_PATTERN, TEST_FILE = "data_batch_*.bin", "test_batch.bin"


def prepare_cifar10(dataset: Cifar10File, folder: Path) -> PreparedArrays:
    """Read and check CIFAR-10 files, and write the arrays of the dataset to `folder`."""
    path = Path(dataset.path.file)
    train_paths, test_paths = [path], []
    if is_folder("path", path):
        train_paths, test_paths = sorted(path.glob(TRAIN_PATTERN)), [*path.glob(TEST_FILE)]
        if not train_paths:
            message = f"{path_for_messages(path)}: the folder has no files {TRAIN_PATTERN}"
            raise DataFileError("path", message)
    test_key = "path"
    if dataset.test_path:
        test_key, test_paths = "test_path", [Path(dataset.test_path.file)]
    train = _read_files("path", train_paths)
    test = _read_files(test_key, test_paths) if test_paths else None
    return prepare_samples(dataset, folder, train, test, class_count=CLASSES, scale="pixels")


def _read_files(key: str, paths: Sequence[Path]) -> FileSamples:
    """Return the images and labels of several files, one after the other."""
    labels = [_read_labels(key, path) for path in paths]
    check_prepared_size(key, path_for_messages(paths[0].parent), RECORD_BYTES * sum(map(len, labels)))
    return FileSamples(IMAGE_SHAPE, np.dtype(np.uint8), np.concatenate(labels), lambda: _read_images(key, paths))


def _read_labels(key: str, path: Path) -> HostArray:
    """Return the labels of a file, after a check of its size."""
    name = path_for_messages(path)
    with explain_read_errors(key, path):
        check_is_file(key, path)
        size_bytes = path.stat().st_size
        if not size_bytes or size_bytes % RECORD_BYTES:
            message = (
                f"{name}: the file has {size_bytes:,} bytes, which is no multiple of {RECORD_BYTES:,}, the size of a "
                f"CIFAR-10 record; the last record would begin at byte {size_bytes - size_bytes % RECORD_BYTES:,}"
            )
            raise DataFileError(key, message)
        records = np.memmap(path, np.uint8, "r").reshape(-1, RECORD_BYTES)
    labels = records[:, 0].astype(np.int64)
    check_labels(key, name, labels, CLASSES, first_offset=0, stride=RECORD_BYTES)
    return labels


def _read_images(key: str, paths: Sequence[Path]) -> Iterator[HostArray]:
    size = rows_per_chunk(RECORD_BYTES)
    for path in paths:
        with explain_read_errors(key, path):
            records = np.memmap(path, np.uint8, "r").reshape(-1, RECORD_BYTES)
        for start in range(0, len(records), size):
            yield records[start : start + size, 1:].reshape(-1, *IMAGE_SHAPE)
