"""Reader of traces of failures: a table as text with a line for each failure of a node."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from compose.data_files.text_table import raise_at_line, read_lines
from services.cluster.events import DECLARED_EVENT_KINDS, MAX_RANDOM_OCCURRENCES
from services.schema.units import Duration

REQUIRED_COLUMNS, OPTIONAL_COLUMN = ("time", "node"), "kind"
NODE_NAME = re.compile(r"(worker|server)-(0|[1-9][0-9]*)|coordinator")
HEADER_EXAMPLE = "in the first line, write time,node or time,node,kind"
DURATION = TypeAdapter(Duration)


def read_failure_trace(path: Path) -> list[dict[str, Any]]:
    """Return the failures in a file, as a scenario document contains them.

    Raises:
        DataFileError: the file can't be read, or a value is wrong; the message states line and value.
    """
    lines = read_lines(path)
    line, header = next(lines, (1, []))
    columns = [name.strip() for name in header]
    if not columns:
        raise_at_line(path, line, f"the file is empty; {HEADER_EXAMPLE}")
    if columns not in ([*REQUIRED_COLUMNS], [*REQUIRED_COLUMNS, OPTIONAL_COLUMN]):
        raise_at_line(path, line, f"the columns are {', '.join(columns)}; {HEADER_EXAMPLE}")
    failures: list[dict[str, Any]] = []
    for line, cells in lines:
        failures.append(_parse_failure(path, line, columns, [cell.strip() for cell in cells]))
        if len(failures) > MAX_RANDOM_OCCURRENCES:
            raise_at_line(path, line, f"more than {MAX_RANDOM_OCCURRENCES:,} failures; shorten the trace")
    if not failures:
        raise_at_line(path, line, "no line with a failure follows the names of the columns")
    return failures


def _parse_failure(path: Path, line: int, columns: Sequence[str], cells: Sequence[str]) -> dict[str, Any]:
    if len(cells) != len(columns):
        raise_at_line(path, line, f"{len(cells)} values for {len(columns)} columns; write one value per column")
    values = dict(zip(columns, cells, strict=True))
    if not NODE_NAME.fullmatch(values["node"]):
        names = "a node such as worker-0, server-0 or coordinator"
        raise_at_line(path, line, f"column node: {values['node']!r} is not the name of {names}")
    if (kind := values.get("kind", "")) and kind not in DECLARED_EVENT_KINDS:
        kinds = ", ".join(sorted(DECLARED_EVENT_KINDS))
        raise_at_line(path, line, f"column kind: {kind!r} is not supported; supported kinds are {kinds}")
    return {"time_s": _parse_time_s(path, line, values["time"]), "node": values["node"], "kind": kind}


def _parse_time_s(path: Path, line: int, cell: str) -> float:
    """Return a time in virtual seconds: a duration with a unit, or a number of seconds."""
    try:
        return float(DURATION.validate_python(cell if cell[-1:].isalpha() else f"{cell}s"))
    except ValidationError:
        raise_at_line(path, line, f"column time: {cell!r} is not a time; write seconds, or a unit such as 350ms")
