"""Reader of traces of compute times: a table as text with a column for each worker and a line for each step."""

import re
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any

from compose.data_files.text_table import raise_at_line, read_lines

COLUMN_NAME = re.compile(r"worker-(0|[1-9][0-9]*)")
MAX_TRACE_VALUE = 1e100  # the sum of all values of a trace is a finite number, too
MAX_TRACE_VALUES = 20_000  # a plan contains all of them


def read_speed_trace(path: Path, *, are_durations: bool) -> list[dict[str, Any]]:
    """Return the factors of each worker by step, as a scenario document contains them.

    Durations are divided by the mean of all durations.

    Raises:
        DataFileError: the file can't be read, or a value is not a positive number; the message states line and value.
    """
    names, rows = _read_table(path)
    mean = fmean(value for row in rows for value in row) if are_durations else 1.0
    return [
        {"worker": name, "factors": [value / mean for value in column]}
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    ]


def _read_table(path: Path) -> tuple[list[str], list[list[float]]]:
    lines = read_lines(path)
    line_number, header = next(lines, (1, []))
    names = [name.strip() for name in header]
    _check_header(path, line_number, names)
    rows = []
    for line, cells in lines:
        if len(cells) != len(names):
            raise_at_line(path, line, f"{len(cells)} values for {len(names)} columns; write one value per column")
        rows.append([_parse_value(path, line, name, cell) for name, cell in zip(names, cells, strict=True)])
        if len(rows) * len(names) > MAX_TRACE_VALUES:
            raise_at_line(path, line, f"more than {MAX_TRACE_VALUES:,} values; shorten the trace: it is repeated")
    if not rows:
        raise_at_line(path, line_number, "no line with values follows the names of the columns")
    return names, rows


def _check_header(path: Path, line: int, names: Sequence[str]) -> None:
    example = "write the names of workers, for example worker-0,worker-1"
    if not names:
        raise_at_line(path, line, f"the file is empty; in its first line, {example}")
    if wrong := [name for name in names if not COLUMN_NAME.fullmatch(name)]:
        raise_at_line(path, line, f"{wrong[0]!r} is not the name of a worker; in the first line, {example}")
    if repeated := [name for name in names if names.count(name) > 1]:
        raise_at_line(path, line, f"two columns are named {repeated[0]}; write each worker once")


def _parse_value(path: Path, line: int, column: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = 0.0
    if not (isfinite(value) and value > 0):
        raise_at_line(path, line, f"column {column}: {cell.strip()!r} is not a positive number")
    if value > MAX_TRACE_VALUE:
        raise_at_line(path, line, f"column {column}: {cell.strip()} is too large; write at most {MAX_TRACE_VALUE:g}")
    return value
