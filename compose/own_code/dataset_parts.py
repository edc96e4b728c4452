"""Samples and targets that code of the user has returned."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from compose.data_files.samples import FileSamples, rows_per_chunk
from services.learning.own_code import UserCode, make_error
from services.schema.arrays import HostArray

NUMBER_KINDS = "buif"  # kinds of NumPy's types: booleans, integers and floating-point numbers


class DatasetPart(NamedTuple):
    """Training samples, test samples, or samples that are split later, with their targets."""

    x_name: str  # for messages
    y_name: str
    x: HostArray  # shape (n, ...)
    y: HostArray  # shape (n, ...)


def convert_to_array(value: Any) -> HostArray | None:
    """Return numbers as an array of NumPy: those of an array, of a tensor of PyTorch, or of a list; None for others."""
    try:
        if hasattr(value, "detach"):
            value = value.detach().cpu().numpy()
        if not isinstance(value, np.ndarray | np.generic | bool | int | float | list | tuple):
            return None
        array = np.asarray(value)
    except (TypeError, ValueError):  # such as a list of lists of different lengths
        return None
    return array if array.dtype.kind in NUMBER_KINDS else None


def check_parts(code: UserCode, parts: list[DatasetPart]) -> None:
    """Check that each part has as many targets as samples, and that all parts have samples of the same kind.

    Raises:
        OwnCodeError: the parts are wrong.
    """
    for part in parts:
        if not part.x.ndim or not all(part.x.shape):
            raise make_error(code, f"{part.x_name} has the shape {part.x.shape}, and no numbers to train on")
        if part.y.ndim == 0 or len(part.x) != len(part.y):
            count = len(part.y) if part.y.ndim else 1
            raise make_error(code, f"{part.y_name} has {count} targets for {len(part.x)} samples in {part.x_name}")
        if not np.isfinite(part.y).all():
            bad = np.flatnonzero(~np.isfinite(part.y.reshape(len(part.y), -1)).all(axis=1))
            raise make_error(code, f"{part.y_name}: target {int(bad[0])} has a number that is not finite")
    first = parts[0]
    for part in parts[1:]:
        _check_equal_rows(code, (first.x_name, first.x), (part.x_name, part.x))
        _check_equal_rows(code, (first.y_name, first.y), (part.y_name, part.y))


def _check_equal_rows(code: UserCode, train: tuple[str, HostArray], test: tuple[str, HostArray]) -> None:
    (train_name, of_train), (test_name, of_test) = train, test
    if of_train.shape[1:] != of_test.shape[1:] or of_train.dtype != of_test.dtype:
        raise make_error(
            code,
            f"a row of {test_name} has the shape {of_test.shape[1:]} of {of_test.dtype}; one of {train_name} has "
            f"{of_train.shape[1:]} of {of_train.dtype}; return samples of one shape and type",
        )


def make_samples(code: UserCode, part: DatasetPart, targets: HostArray) -> FileSamples:
    """Return the samples of a part with converted targets, to be written in chunks."""

    def read_chunks() -> Iterator[HostArray]:
        size = rows_per_chunk(part.x[0].nbytes)
        for start in range(0, len(part.x), size):
            rows = part.x[start : start + size]
            if not np.isfinite(rows).all():
                bad = np.flatnonzero(~np.isfinite(rows.reshape(len(rows), -1)).all(axis=1))
                message = f"{part.x_name}: sample {start + int(bad[0])} has a number that is not finite"
                raise make_error(code, message)
            yield rows

    return FileSamples(part.x.shape[1:], part.x.dtype, targets, read_chunks)
