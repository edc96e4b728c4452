"""Preparation of tables: rows of a csv or parquet file become samples."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple, Protocol

import numpy as np

from compose.data_files.limits import MAX_COLUMNS
from compose.data_files.readers.csv_rows import open_csv
from compose.data_files.readers.parquet_rows import open_parquet
from compose.data_files.samples import (
    FileSamples,
    check_class_count,
    check_prepared_size,
    prepare_samples,
    rows_per_chunk,
)
from services.learning.datasets.files import CsvFile, DataFile, DataFileError, ParquetFile, TableFile
from services.learning.datasets.prepared import PreparedArrays
from services.schema.arrays import HostArray
from services.schema.message_paths import path_for_messages

NUMBER_BYTES = 8


class TableRows(Protocol):
    """Open table, from which rows are read once, in chunks."""

    @property
    def column_names(self) -> Sequence[str]:
        """Names of all columns."""

    def read_chunks(
        self, number_columns: Sequence[str], word_column: str | None
    ) -> Iterator[tuple[HostArray, list[str]]]:
        """Yield consecutive rows: numbers of shape (rows, columns), and the words of one column.

        Raises:
            DataFileError: a value is missing or is no number; the message states row and column.
        """


class TableColumns(NamedTuple):
    """Columns of a table that are read."""

    features: tuple[str, ...]
    targets: tuple[str, ...]


@dataclass
class ClassNumbers:
    """Class numbers of the words in the target column."""

    numbers: Mapping[str, int]

    @classmethod
    def of_words(cls, words: Sequence[str]) -> "ClassNumbers":
        """Return the numbers of all words: in numerical order if all are numbers, else in alphabetical order."""
        distinct = sorted(set(words))
        try:
            distinct.sort(key=float)
        except ValueError:
            distinct.sort()
        return cls({word: number for number, word in enumerate(distinct)})

    def class_numbers_of(self, key: str, file_name: str, column: str, words: Sequence[str]) -> HostArray:
        """Return the class number of each word.

        Raises:
            DataFileError: a word is no class of the training table.
        """
        for row, word in enumerate(words, start=1):
            if word not in self.numbers:
                known = ", ".join(list(self.numbers)[:10])
                message = (
                    f"{file_name}: row {row}, column {column}: {word!r} is no class of path; its classes are {known}"
                    f"{', …' if len(self.numbers) > 10 else ''}"  # noqa: PLR2004 - as many as the message lists
                )
                raise DataFileError(key, message)
        return np.array([self.numbers[word] for word in words], np.int64)


def prepare_csv(dataset: CsvFile, folder: Path) -> PreparedArrays:
    """Read and check a table as text, and write the arrays of the dataset to `folder`."""
    files = dict(dataset.data_files())
    tables = {key: open_csv(key, Path(file.file), dataset.delimiter) for key, file in files.items()}
    return _prepare_table(dataset, folder, files, tables)


def prepare_parquet(dataset: ParquetFile, folder: Path) -> PreparedArrays:
    """Read and check a table in the format of Parquet, and write the arrays of the dataset to `folder`."""
    files = dict(dataset.data_files())
    tables = {key: open_parquet(key, Path(file.file)) for key, file in files.items()}
    return _prepare_table(dataset, folder, files, tables)


def _prepare_table(
    dataset: TableFile, folder: Path, files: Mapping[str, DataFile], tables: Mapping[str, TableRows]
) -> PreparedArrays:
    """Write the arrays of a dataset, given its open tables by key."""
    columns = _choose_columns(dataset, tables["path"].column_names)
    samples: dict[str, FileSamples] = {}
    classes: ClassNumbers | None = None
    for key, table in tables.items():
        name = path_for_messages(Path(files[key].file))
        _check_columns_exist(key, name, columns, table.column_names)
        numbers, words = _read_table(key, name, table, _columns_to_read(dataset, columns), folder)
        feature_count = len(columns.features)
        targets: HostArray = numbers[:, feature_count:]
        if dataset.task == "classification":
            classes = classes or ClassNumbers.of_words(words)
            targets = classes.class_numbers_of(key, name, columns.targets[0], words)
        features = numbers[:, :feature_count]
        samples[key] = FileSamples((feature_count,), np.dtype(float), np.array(targets), partial(_split_rows, features))
    if classes:
        check_class_count("target", path_for_messages(Path(dataset.path.file)), len(classes.numbers))
    return prepare_samples(
        dataset,
        folder,
        samples["path"],
        samples.get("test_path"),
        class_count=len(classes.numbers) if classes else None,
        scale="standardised" if dataset.standardise else "as_stored",
    )


def _choose_columns(dataset: TableFile, column_names: Sequence[str]) -> TableColumns:
    """Return the columns of features and targets."""
    targets = dataset.target_columns
    name = path_for_messages(Path(dataset.path.file))
    if dataset.task == "classification" and len(targets) != 1:
        raise DataFileError("target", f"a classification has one target column, not {len(targets)}")
    if len(column_names) > MAX_COLUMNS:
        raise DataFileError("path", f"{name}: {len(column_names):,} columns; at most {MAX_COLUMNS:,} are allowed")
    features = dataset.features or tuple(column for column in column_names if column not in targets)
    if not features or not targets:
        raise DataFileError("target", f"{name}: the table needs at least one column of features and one target")
    if repeated := [column for column in features if column in targets or features.count(column) > 1]:
        raise DataFileError("features", f"column {repeated[0]} is listed twice, among features or as a target, too")
    return TableColumns(features, targets)


def _check_columns_exist(key: str, file_name: str, columns: TableColumns, column_names: Sequence[str]) -> None:
    for group, names in (("target", columns.targets), ("features", columns.features)):
        for column in names:
            if column not in column_names:
                known = ", ".join(column_names[:20])
                message = f"{file_name}: there is no column {column!r}; the columns are {known}"
                raise DataFileError(group if key == "path" else key, message)


def _columns_to_read(dataset: TableFile, columns: TableColumns) -> tuple[tuple[str, ...], str | None]:
    """Return the columns of numbers, and the column of words: the target of a classification."""
    if dataset.task == "classification":
        return columns.features, columns.targets[0]
    return (*columns.features, *columns.targets), None


def _read_table(
    key: str, file_name: str, table: TableRows, columns: tuple[tuple[str, ...], str | None], folder: Path
) -> tuple[HostArray, list[str]]:
    """Return all numbers of a table, mapped from a temporary file in `folder`, and the words of its target."""
    number_columns, word_column = columns
    row_count, all_words = 0, []
    with TemporaryFile(dir=folder) as spool:
        for numbers, words in table.read_chunks(number_columns, word_column):
            row_count += len(numbers)
            check_prepared_size(key, file_name, row_count * len(number_columns) * NUMBER_BYTES)
            spool.write(np.ascontiguousarray(numbers, float).data)
            all_words += words
        if not row_count:
            raise DataFileError(key, f"{file_name}: the table has no rows")
        spool.flush()
        mapped = np.memmap(spool, float, "r", shape=(row_count, len(number_columns)))
    return mapped, all_words


def _split_rows(rows: HostArray) -> Iterator[HostArray]:
    size = rows_per_chunk(rows.shape[1] * NUMBER_BYTES)
    return (rows[start : start + size] for start in range(0, len(rows), size))
