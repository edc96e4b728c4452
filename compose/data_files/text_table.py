"""Reader of small tables as text that a scenario names, with errors that state the line."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from compose.data_files.paths import check_is_file, explain_read_errors
from compose.data_files.readers.csv_rows import find_undecodable_line
from services.learning.datasets.files import DataFileError
from services.schema.message_paths import path_for_messages

KEY = "file"  # of the part of the scenario that names the table


def read_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line that is not empty, with the number of the line.

    Raises:
        DataFileError: the file can't be read, or is no table as text.
    """
    with explain_read_errors(KEY, path):
        check_is_file(KEY, path)
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            try:
                yield from ((reader.line_num, cells) for cells in reader if cells)
            except csv.Error as error:
                raise_at_line(path, reader.line_num, f"{error}")
            except UnicodeDecodeError as error:
                reason = f"a character is not valid UTF-8 ({error.reason}); save the file as UTF-8 text"
                raise_at_line(path, find_undecodable_line(path), reason)


def raise_at_line(path: Path, line: int, problem: str) -> NoReturn:
    """Raise a DataFileError whose message states the file, the line and the problem."""
    raise DataFileError(KEY, f"{path_for_messages(path)}:{line}: {problem}")
