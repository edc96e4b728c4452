"""Samples that a reader has found in a file, and their conversion to the arrays of a prepared dataset."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from compose.data_files.array_writer import ArrayWriter, write_array
from compose.data_files.limits import MAX_CLASSES, MAX_PREPARED_BYTES
from services.learning.datasets import LearningTask
from services.learning.datasets.files import DataFileError, UserDataset
from services.learning.datasets.prepared import PreparedArrays
from services.learning.datasets.split import random_split, stratified_split
from services.learning.layout import Shape
from services.learning.objectives import LossName
from services.schema.arrays import HostArray

CHUNK_BYTES = 16 << 20  # of samples that are in memory at a time
MAX_PIXEL_VALUE = 255.0

SampleScale = Literal["as_stored", "pixels", "standardised"]


@dataclass(frozen=True)
class FileSamples:
    """Samples and targets of one file, in its order."""

    sample_shape: Shape
    sample_type: np.dtype[Any]
    targets: HostArray  # classes (n,), or values of a regression (n, outputs)
    read_chunks: Callable[[], Iterator[HostArray]]  # consecutive samples; together all samples of the file

    @property
    def is_classification(self) -> bool:
        """Whether the targets are classes."""
        return self.targets.dtype.kind in "iu" and self.targets.ndim == 1


def rows_per_chunk(row_bytes: int) -> int:
    """Return the number of rows that are read at a time."""
    return max(1, CHUNK_BYTES // max(1, row_bytes))


def check_prepared_size(key: str, file_name: str, size_bytes: int) -> None:
    """Raise DataFileError if arrays of this size are larger than the limit; a small file may expand to them."""
    if size_bytes > MAX_PREPARED_BYTES:
        message = f"{file_name}: the data have {size_bytes:,} bytes; at most {MAX_PREPARED_BYTES:,} are allowed"
        raise DataFileError(key, message)


def check_class_count(key: str, file_name: str, class_count: int) -> None:
    """Raise DataFileError if there are more classes than the limit."""
    if class_count > MAX_CLASSES:
        message = f"{file_name}: {class_count:,} classes; at most {MAX_CLASSES:,} are allowed"
        raise DataFileError(key, message)


def prepare_samples(
    dataset: UserDataset,
    folder: Path,
    train: FileSamples,
    test: FileSamples | None,
    *,
    class_count: int | None = None,
    scale: SampleScale = "as_stored",
    loss: LossName | None = None,
) -> PreparedArrays:
    """Write the arrays of a prepared dataset, and return their description.

    Args:
        dataset: the declared dataset.
        folder: folder of the arrays, empty.
        train: samples of the file `path`.
        test: test samples; None: a part of `train`.
        class_count: number of classes or tokens; None for a regression.
        scale: scale of the samples, and of the targets of a regression.
        loss: loss of the task; default: that of a classification, or of a regression.
    """
    parts = _choose_parts(dataset, train, test)
    for part, (samples, is_chosen) in parts.items():
        write_array(folder, f"{part}_y", samples.targets[is_chosen])
    _write_samples(folder, parts)
    _write_scales(folder, scale, is_regression=class_count is None)
    task = LearningTask(
        inputs=train.sample_shape,
        outputs=class_count or train.targets.shape[1],
        loss=loss or ("cross_entropy" if class_count else "mse"),
    )
    return PreparedArrays(
        task=task,
        train_samples=int(parts["train"].is_chosen.sum()),
        test_samples=int(parts["test"].is_chosen.sum()),
        stored_bytes=sum(path.stat().st_size for path in folder.iterdir()),
    )


def _choose_parts(dataset: UserDataset, train: FileSamples, test: FileSamples | None) -> dict[str, "_SamplePart"]:
    """Return the samples of the training and of the test part."""
    if test is None:
        is_test = _choose_test_samples(dataset, train)
        return {"train": _SamplePart(train, ~is_test), "test": _SamplePart(train, is_test)}
    return {
        part: _SamplePart(samples, np.ones(len(samples.targets), bool))
        for part, samples in (("train", train), ("test", test))
    }


class _SamplePart(NamedTuple):
    """Chosen samples of a file."""

    samples: FileSamples
    is_chosen: HostArray  # mask of the samples of the file


def _choose_test_samples(dataset: UserDataset, samples: FileSamples) -> HostArray:
    """Return a mask of the samples that are used for testing; of a classification, the same share of each class."""
    count = len(samples.targets)
    _, test = (
        stratified_split(samples.targets, dataset.test_fraction, dataset.seed)
        if samples.is_classification
        else random_split(count, dataset.test_fraction, dataset.seed)
    )
    if not 0 < len(test) < count:
        message = (
            f"test_fraction {dataset.test_fraction:g} leaves {count - len(test)} training samples and {len(test)} test "
            f"samples of {count}; at least one of each is needed; "
            f"{dataset.remedy_for_missing_test_samples}, or use more samples"
        )
        raise DataFileError("test_fraction", message)
    is_test = np.zeros(count, bool)
    is_test[test] = True
    return is_test


def _write_samples(folder: Path, parts: Mapping[str, _SamplePart]) -> None:
    """Write the samples of all parts in the order of their files; read each file once."""
    writers = {
        part: ArrayWriter(folder, f"{part}_x", (int(chosen.sum()), *samples.sample_shape), samples.sample_type)
        for part, (samples, chosen) in parts.items()
    }
    with ExitStack() as stack:
        for writer in writers.values():
            stack.enter_context(writer)
        for samples in {id(samples): samples for samples, _ in parts.values()}.values():
            masks = {part: chosen for part, (each, chosen) in parts.items() if each is samples}
            position = 0
            for chunk in samples.read_chunks():
                for part, mask in masks.items():
                    writers[part].append(chunk[mask[position : position + len(chunk)]])
                position += len(chunk)


def _write_scales(folder: Path, scale: SampleScale, *, is_regression: bool) -> None:
    """Write the offsets and divisors that give samples and targets their scale."""
    if scale == "pixels":
        np.save(folder / "x_divisor.npy", np.asarray(MAX_PIXEL_VALUE))
    if scale == "standardised":
        for name in ("x", "y") if is_regression else ("x",):
            training_rows = np.load(folder / f"train_{name}.npy", mmap_mode="r", allow_pickle=False)
            mean, deviation = _mean_and_deviation(training_rows)
            np.save(folder / f"{name}_offset.npy", mean)
            np.save(folder / f"{name}_divisor.npy", np.where(deviation > 0, deviation, 1.0))  # constants become 0


def _mean_and_deviation(rows: HostArray) -> tuple[HostArray, HostArray]:
    """Return mean and standard deviation over the rows, in fp64, reading a part of the rows at a time."""
    size = rows_per_chunk(rows[0].nbytes)
    chunks = [slice(start, start + size) for start in range(0, len(rows), size)]
    mean = sum(rows[chunk].sum(axis=0, dtype=float) for chunk in chunks) / len(rows)
    squares = sum(((rows[chunk] - mean) ** 2).sum(axis=0) for chunk in chunks)
    return np.asarray(mean), np.sqrt(np.asarray(squares) / len(rows))
