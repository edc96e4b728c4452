"""Checks of class labels in data files."""

import numpy as np

from compose.data_files.samples import check_class_count
from services.learning.datasets.files import DataFileError
from services.schema.arrays import HostArray


def count_classes(key: str, file_name: str, labels: HostArray, declared_count: int | None) -> int:
    """Return the number of classes: the declared number, or the largest label plus 1.

    Raises:
        DataFileError: a label is negative or too large, or there are no labels.
    """
    if not len(labels):
        raise DataFileError(key, f"{file_name}: there are no labels")
    class_count = declared_count or int(labels.max()) + 1
    check_class_count(key, file_name, class_count)
    check_labels(key, file_name, labels, class_count)
    return class_count


def check_labels(
    key: str, file_name: str, labels: HostArray, class_count: int, *, first_offset: int | None = None, stride: int = 1
) -> None:
    """Raise DataFileError if a label is not a class number.

    Args:
        key: key of the dataset that names the file.
        file_name: name of the file in messages.
        labels: class numbers, which should be from 0 to before `class_count`.
        class_count: number of classes.
        first_offset: offset of the first label in the file, in bytes, if messages state offsets.
        stride: bytes from one label to the next.
    """
    wrong = np.flatnonzero((labels < 0) | (labels >= class_count))
    if wrong.size:
        number = int(wrong[0])
        place = f"sample {number}" + ("" if first_offset is None else f", byte {first_offset + number * stride:,}")
        message = (
            f"{file_name}: {place}: the label is {labels[number]}; with {class_count} classes, labels are 0 to "
            f"{class_count - 1}"
        )
        raise DataFileError(key, message)
