"""Reader of tables in the format of Apache Parquet."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compose.data_files.limits import MAX_ROW_GROUP_BYTES
from compose.data_files.optional_packages import import_optional
from compose.data_files.paths import check_is_file, explain_read_errors
from services.learning.datasets.files import DataFileError
from services.schema.arrays import HostArray
from services.schema.message_paths import path_for_messages

CHUNK_ROWS = 65_536


@dataclass(frozen=True)
class ParquetRows:
    """Table in a parquet file."""

    key: str  # of the dataset, for errors
    path: Path
    column_names: Sequence[str]

    def read_chunks(
        self, number_columns: Sequence[str], word_column: str | None
    ) -> Iterator[tuple[HostArray, list[str]]]:
        """Yield consecutive rows: numbers of shape (rows, columns), and the words of one column.

        Raises:
            DataFileError: a value is missing or is no number; the message states row and column.
        """
        columns = [*number_columns, *([word_column] if word_column else [])]
        first_row = 1
        with _open_file(self.key, self.path) as file:
            self._check_types(file.schema_arrow, number_columns)
            for batch in file.iter_batches(batch_size=CHUNK_ROWS, columns=columns):
                for column in columns:
                    self._check_no_nulls(column, batch.column(column), first_row)
                numbers = [self._read_numbers(column, batch.column(column), first_row) for column in number_columns]
                words = [str(value) for value in batch.column(word_column).to_pylist()] if word_column else []
                yield np.column_stack([*numbers, np.empty((batch.num_rows, 0))]), words
                first_row += batch.num_rows

    def _check_types(self, schema: Any, number_columns: Sequence[str]) -> None:
        types = import_optional(self.key, "pyarrow.types", "pyarrow")
        for column in number_columns:
            column_type = schema.field(column).type
            if not (types.is_integer(column_type) or types.is_floating(column_type) or types.is_boolean(column_type)):
                self._raise(f"column {column} has the type {column_type}; allowed are numbers and booleans")

    def _check_no_nulls(self, column: str, values: Any, first_row: int) -> None:
        if values.null_count:
            row = first_row + values.is_null().to_pylist().index(True)
            self._raise(f"row {row}, column {column}: the value is missing; fill it, or leave the column out")

    def _read_numbers(self, column: str, values: Any, first_row: int) -> HostArray:
        numbers = np.asarray(values.to_numpy(zero_copy_only=False), float)
        if bad := np.flatnonzero(~np.isfinite(numbers)).tolist():
            self._raise(f"row {first_row + bad[0]}, column {column}: {numbers[bad[0]]} is not a finite number")
        return numbers

    def _raise(self, problem: str) -> None:
        raise DataFileError(self.key, f"{path_for_messages(self.path)}: {problem}")


def open_parquet(key: str, path: Path) -> ParquetRows:
    """Return the table in a parquet file, after a check of its metadata.

    Raises:
        DataFileError: the file can't be read, is damaged or too large, or the package pyarrow is missing.
    """
    with _open_file(key, path) as file:
        names = file.schema_arrow.names
        groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
        largest_bytes = max((group.total_byte_size for group in groups), default=0)
    name = path_for_messages(path)
    if largest_bytes > MAX_ROW_GROUP_BYTES:
        message = (
            f"{name}: a row group expands to {largest_bytes:,} bytes; at most {MAX_ROW_GROUP_BYTES:,} are allowed; "
            "write smaller row groups"
        )
        raise DataFileError(key, message)
    if repeated := [column for column in names if names.count(column) > 1]:
        raise DataFileError(key, f"{name}: two columns are named {repeated[0]!r}; give each its own name")
    return ParquetRows(key, path, names)


@contextmanager
def _open_file(key: str, path: Path) -> Iterator[Any]:
    """Open a parquet file, and convert errors of reading it."""
    parquet = import_optional(key, "pyarrow.parquet", "pyarrow")
    errors = import_optional(key, "pyarrow.lib", "pyarrow")
    with explain_read_errors(key, path):
        check_is_file(key, path)
        try:
            with parquet.ParquetFile(path) as file:
                yield file
        except (errors.ArrowException, OSError, UnicodeDecodeError) as error:  # the last one: a name or a word
            message = f"{path_for_messages(path)}: not a parquet file, or damaged: {_first_line(error)}"
            raise DataFileError(key, message) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
