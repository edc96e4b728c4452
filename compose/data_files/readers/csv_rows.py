"""Reader of tables as text."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np

from compose.data_files.paths import check_is_file, explain_read_errors
from services.learning.datasets.files import DataFileError
from services.schema.arrays import HostArray
from services.schema.message_paths import path_for_messages

CHUNK_ROWS = 4096
MAX_CELL_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class CsvRows:
    """Table as text, whose first line names the columns."""

    key: str  # of the dataset, for errors
    path: Path
    delimiter: str
    column_names: Sequence[str]

    def read_chunks(
        self, number_columns: Sequence[str], word_column: str | None
    ) -> Iterator[tuple[HostArray, list[str]]]:
        """Yield consecutive rows: numbers of shape (rows, columns), and the words of one column.

        Raises:
            DataFileError: a value is missing or is no number; the message states line and column.
        """
        number_indices = [self.column_names.index(column) for column in number_columns]
        word_indices = [] if word_column is None else [self.column_names.index(word_column)]
        with _open_text(self.key, self.path) as file:
            rows = self._read_rows(file)
            while chunk := [*islice(rows, CHUNK_ROWS)]:
                numbers = self._parse_numbers(chunk, number_indices)
                yield numbers, [self._read_word(line, row, index) for line, row in chunk for index in word_indices]

    def _read_rows(self, file: TextIO) -> Iterator[tuple[int, list[str]]]:
        """Yield each row of the table, with the number of its last line in the file; empty lines are skipped."""
        reader = csv.reader(file, delimiter=self.delimiter, strict=True)
        try:
            next(reader)
            for row in reader:
                if not row:
                    continue
                if len(row) != len(self.column_names):
                    self._raise(reader.line_num, f"{len(row)} values for {len(self.column_names)} columns")
                yield reader.line_num, row
        except csv.Error as error:
            self._raise(reader.line_num, f"{error}")
        except UnicodeDecodeError as error:
            line = find_undecodable_line(self.path)
            self._raise(line, f"a character is not valid UTF-8 ({error.reason}); save the file as UTF-8 text")

    def _parse_numbers(self, chunk: Sequence[tuple[int, list[str]]], column_indices: Sequence[int]) -> HostArray:
        """Return the numbers in the columns at `column_indices`, shape (rows, columns)."""
        try:
            numbers = np.array([[float(row[index]) for index in column_indices] for _, row in chunk])
        except ValueError:
            numbers = None
        if numbers is None or not np.isfinite(numbers).all():
            for line, row in chunk:
                for index in column_indices:
                    self._check_number(line, row, index)
        return np.asarray(numbers).reshape(len(chunk), len(column_indices))

    def _check_number(self, line: int, row: Sequence[str], column_index: int) -> None:
        """Raise DataFileError if a value is no finite number."""
        try:
            is_number = bool(np.isfinite(float(row[column_index])))
        except ValueError:
            is_number = False
        if not is_number:
            value = repr(row[column_index]) if row[column_index].strip() else "the value is missing;"
            hint = "write a number, or leave the column out with features"
            text = f"{value} {hint}" if value.endswith(";") else f"{value} is not a finite number; {hint}"
            self._raise(line, f"column {self.column_names[column_index]}: {text}")

    def _read_word(self, line: int, row: Sequence[str], column_index: int) -> str:
        word = row[column_index].strip()
        if not word:
            self._raise(line, f"column {self.column_names[column_index]}: the class is missing")
        return word

    def _raise(self, line: int, problem: str) -> None:
        raise DataFileError(self.key, f"{path_for_messages(self.path)}:{line}: {problem}")


def open_csv(key: str, path: Path, delimiter: str) -> CsvRows:
    """Return the table in a text file, after a check of its header.

    Raises:
        DataFileError: the file can't be read, or its first line does not name the columns.
    """
    name = path_for_messages(path)
    csv.field_size_limit(MAX_CELL_CHARACTERS)
    with _open_text(key, path) as file:
        try:
            header = [column.strip() for column in next(csv.reader(file, delimiter=delimiter, strict=True), [])]
        except csv.Error as error:
            raise DataFileError(key, f"{name}:1: the header can't be read: {error}") from error
        except UnicodeDecodeError as error:
            line = find_undecodable_line(path)
            message = f"{name}:{line}: a character is not valid UTF-8 ({error.reason}); save the file as UTF-8 text"
            raise DataFileError(key, message) from error
    if not header:
        raise DataFileError(key, f"{name}: the file is empty; its first line must name the columns")
    if empty := [number for number, column in enumerate(header, start=1) if not column]:
        raise DataFileError(key, f"{name}:1: column {empty[0]} has no name")
    if repeated := [column for column in header if header.count(column) > 1]:
        raise DataFileError(key, f"{name}:1: two columns are named {repeated[0]!r}; give each its own name")
    if all(_is_number(column) for column in header):
        raise DataFileError(key, f"{name}:1: the first line has only numbers; it must name the columns")
    return CsvRows(key, path, delimiter, header)


def find_undecodable_line(path: Path) -> int:
    """Return the number of the first line that is not valid UTF-8."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 0


def _open_text(key: str, path: Path) -> TextIO:
    with explain_read_errors(key, path):
        check_is_file(key, path)
        return path.open(encoding="utf-8-sig", newline="")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
