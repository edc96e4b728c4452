"""Fuzz targets that read data files of users."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from compose.data_files.failure_trace import read_failure_trace
from compose.data_files.preparation import PREPARERS
from compose.data_files.speed_trace import read_speed_trace
from fuzz_targets.target import empty_folder, write_files
from services.learning.datasets.files import (
    Cifar10File,
    CsvFile,
    DataFile,
    DataFileError,
    IdxFile,
    ImageFolder,
    NpzFile,
    ParquetFile,
    TextFile,
    UserDataset,
)

IDX_FILES = ("images", "labels")


def _prepare_each(content: bytes, make_datasets: Callable[[DataFile], Iterable[UserDataset]]) -> None:
    """Prepare the same file as several datasets; the error of the last one is raised."""
    path = empty_folder("data") / "file"
    path.write_bytes(content)
    _prepare(make_datasets(DataFile(file=str(path))))


def _prepare(datasets: Iterable[UserDataset]) -> None:
    last_error: DataFileError | None = None
    for dataset in datasets:
        try:
            arrays = PREPARERS[dataset.kind](dataset, empty_folder("prepared"))
        except DataFileError as error:
            last_error = error
        else:
            last_error = None
            assert arrays.train_samples > 0
            assert arrays.test_samples > 0
    if last_error:
        raise last_error


def read_idx(content: bytes) -> None:
    """Read samples and labels in idx files."""
    folder = empty_folder("data")
    for name in IDX_FILES:
        (folder / name).touch()
    write_files(folder, content, IDX_FILES)
    path, labels = (DataFile(file=str(folder / name)) for name in IDX_FILES)
    _prepare([IdxFile(path=path, labels=labels)])


def read_cifar10(content: bytes) -> None:
    """Read a file in the format of CIFAR-10."""
    _prepare_each(content, lambda file: [Cifar10File(path=file, test_fraction=0.4)])


def read_npz(content: bytes) -> None:
    """Read arrays of NumPy, as they are and standardised."""
    scales: tuple[Any, ...] = ("standardised", "as_stored")
    _prepare_each(content, lambda file: [NpzFile(path=file, scale=scale) for scale in scales])


def read_csv(content: bytes) -> None:
    """Read a table as text, as a classification and as a regression."""
    tasks: tuple[Any, ...] = ("classification", "regression")
    _prepare_each(content, lambda file: [CsvFile(path=file, target="price", task=task) for task in tasks])


def read_parquet(content: bytes) -> None:
    """Read a table in the format of Parquet, as a classification and as a regression."""
    tasks: tuple[Any, ...] = ("classification", "regression")
    _prepare_each(content, lambda file: [ParquetFile(path=file, target="price", task=task) for task in tasks])


def read_text(content: bytes) -> None:
    """Read a text as words and as characters."""
    levels: tuple[Any, ...] = ("word", "character")
    _prepare_each(content, lambda file: [TextFile(path=file, level=level, context=3) for level in levels])


def read_picture(content: bytes) -> None:
    """Read a folder of pictures: two classes with several copies of the same picture."""
    folder = empty_folder("data")
    for name in ("red", "blue"):
        (folder / name).mkdir()
        for number in range(2):
            (folder / name / f"{number}").write_bytes(content)
    half: dict[str, Any] = {"path": DataFile(file=str(folder)), "test_fraction": 0.5}
    _prepare([ImageFolder(**half, size=(4, 4), colour="grey"), ImageFolder(**half)])


def read_trace(content: bytes) -> None:
    """Read a trace of compute times, as durations and as factors."""
    path = Path(empty_folder("data") / "trace.csv")
    path.write_bytes(content)
    for are_durations in (True, False):
        read_speed_trace(path, are_durations=are_durations)


def read_failures(content: bytes) -> None:
    """Read a trace of failures of nodes."""
    path = Path(empty_folder("data") / "failures.csv")
    path.write_bytes(content)
    assert read_failure_trace(path)
