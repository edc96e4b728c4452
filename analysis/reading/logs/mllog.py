"""Parser of MLPerf-style log lines.

It reads the logs of Ensayo's nodes and of results that MLCommons publishes. A log line is `:::MLLOG ` and one JSON
object (mlcommons/logging, `mlp_parser`). Text before `:::MLLOG ` is dropped, such as the service prefix of `docker
compose logs`. A node logs many rows in one line, for example its training steps; the value of such a line becomes
`MllogTable`.
"""

import json
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from pydantic_core import from_json

from analysis.statistics.centre import Floats
from services.runtime.run_log import LOG_LINE_PREFIX

BATCH_KEYS = {"columns", "rows"}


@dataclass(frozen=True, eq=False)
class MllogTable:
    """Rows of numbers that a node logged in one line, with the names of their columns.

    An array needs a fifth of the memory of lists of numbers. Each line is converted right after it is parsed, while its
    numbers are in the processor's cache, because reading long logs takes four fifths of the time of a report.
    """

    columns: tuple[str, ...]
    rows: Floats  # shape (rows, columns); null is NaN

    def __eq__(self, other: object) -> bool:
        """Return whether two tables have equal column names and equal numbers.

        NaN equals NaN.
        """
        if not isinstance(other, MllogTable):
            return NotImplemented
        return self.columns == other.columns and np.array_equal(self.rows, other.rows, equal_nan=True)

    __hash__ = None  # type: ignore[assignment] # a batch is not hashable, like a list


def decode_logged_table_rows(parsed_json: Any) -> MllogTable:
    """Decode a value logged as `{"columns": [name, ...], "rows": [[number or null, ...], ...]}`.

    Every entry that NumPy converts to a float counts as a number.

    Raises:
        ValueError: the value is not a batch. The message continues a sentence that begins with the event's key.
    """
    columns, rows = (
        (parsed_json.get("columns"), parsed_json.get("rows")) if isinstance(parsed_json, dict) else (None, None)
    )
    if not isinstance(columns, list) or not isinstance(rows, list):
        raise ValueError("has no lists `columns` and `rows`")  # noqa: TRY004 - wrong content of a log, not a wrong argument
    names = tuple(map(str, columns))
    if set(map(type, rows)) - {list} or set(map(len, rows)) - {len(names)}:
        raise ValueError(f"has a row that does not have {len(names)} values")
    try:
        numbers = np.array(rows, dtype=float)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError("has a value that is not a number") from error
    if rows and numbers.shape != (len(rows), len(names)):
        raise ValueError("has a value that is not a number")
    return MllogTable(names, numbers.reshape(len(rows), len(names)))


@dataclass(frozen=True)
class MllogEvent:
    """Event that one log line records.

    The difference of two `time_ms` is in milliseconds of virtual time. A `value` of columns and rows is `MllogTable`,
    unless `is_finite` is false or the value cannot be decoded.
    """

    namespace: str
    time_ms: float
    event_type: str
    key: str
    value: Any
    metadata: Mapping[str, Any]
    line_number: int = field(default=0, compare=False)  # in the log file, from 1
    json_text: str = field(default="", compare=False, repr=False)  # the JSON object as it was printed
    is_finite: bool = field(default=True, compare=False, repr=False)  # the line has neither NaN nor infinity

    def format_line(self) -> str:
        """Return the log line of the event.

        It is the original line if the event was read from a log, otherwise a new line.
        """
        fields = ("namespace", "time_ms", "event_type", "key", "value", "metadata")
        return LOG_LINE_PREFIX + (self.json_text or json.dumps({name: getattr(self, name) for name in fields}))


@dataclass(frozen=True)
class UnusableLogLine:
    """Log line that contains `:::MLLOG ` but cannot be used, and the reason."""

    line_number: int  # in the log file, from 1
    problem: str


@dataclass(frozen=True)
class NodeLog:
    """Events of one log file in their order, and the log lines that cannot be used."""

    events: tuple[MllogEvent, ...]
    unusable_lines: tuple[UnusableLogLine, ...] = ()

    @property
    def unusable_line_count(self) -> int:
        """Number of log lines that contain `:::MLLOG ` but cannot be used."""
        return len(self.unusable_lines)

    def events_with_key(self, key: str) -> list[MllogEvent]:
        """Return all events with the given key, in the order of the log."""
        return [event for event in self.events if event.key == key]

    def last_event(self, key: str) -> MllogEvent | None:
        """Return the last event with the given key; None if no event has this key."""
        return next((event for event in reversed(self.events) if event.key == key), None)


def parse_log_lines(lines: Iterable[str]) -> NodeLog:
    """Parse the log lines that contain `:::MLLOG `.

    A line that cannot be parsed is recorded and raises no error.
    """
    parsed = [_parse_event(number, line) for number, line in enumerate(lines, start=1) if LOG_LINE_PREFIX in line]
    events = tuple(each for each in parsed if isinstance(each, MllogEvent))
    return NodeLog(events, tuple(each for each in parsed if isinstance(each, UnusableLogLine)))


def _parse_event(line_number: int, line: str) -> MllogEvent | UnusableLogLine:
    json_text = line.rpartition(LOG_LINE_PREFIX)[2].strip()
    try:
        fields, is_finite = _parse_json_check_finite(json_text)
    except ValueError as error:
        problem = "cut off in the middle" if _is_cut_off(json_text) else f"not valid JSON: {error}"
        return UnusableLogLine(line_number, problem)
    try:
        metadata, value = fields.get("metadata"), fields.get("value")
        event = MllogEvent(
            namespace=str(fields.get("namespace") or ""),
            time_ms=float(fields["time_ms"]),
            event_type=str(fields.get("event_type", "")),
            key=str(fields["key"]),
            value=_decode_logged_value(value) if is_finite else value,  # MllogTable cannot distinguish null from NaN
            metadata={} if metadata is None else metadata,
            line_number=line_number,
            json_text=json_text,
            is_finite=is_finite,
        )
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError):
        return UnusableLogLine(line_number, "not an event: a JSON object with `key` and a numeric `time_ms` is needed")
    return _check_event_fields(event)


def _is_cut_off(json_text: str) -> bool:
    """Return whether the text is the beginning of a JSON object without its end."""
    try:
        json.JSONDecoder().raw_decode(json_text)
    except RecursionError:  # nested too deeply to find out
        return False
    except ValueError:
        return json_text.startswith("{") and not json_text.endswith("}")
    return False


def _decode_logged_value(value: Any) -> Any:
    """Return logged rows of numbers as MllogTable, and every other logged value unchanged."""
    if isinstance(value, dict) and value.keys() == BATCH_KEYS:
        with suppress(ValueError):  # `read_logged_rows` reports what is wrong with a batch that it needs
            return decode_logged_table_rows(value)
    return value


def _parse_json_check_finite(json_text: str) -> tuple[Any, bool]:
    """Return the decoded JSON, and whether all its numbers are finite.

    orjson is many times as fast as other parsers, which matters for long logs.
    """
    try:
        return orjson.loads(json_text), True
    except ValueError:
        return from_json(json_text), False  # accepts NaN and infinity, and names the place of an error


def _check_event_fields(event: MllogEvent) -> MllogEvent | UnusableLogLine:
    """Return a log event, or an unusable log line if the event is invalid.

    An event is invalid if its time is not finite or its metadata is not a JSON object.
    """
    if not math.isfinite(event.time_ms):
        problem = f"not an event: time_ms should be a finite number, not {event.time_ms}"
        return UnusableLogLine(event.line_number, problem)
    if not isinstance(event.metadata, dict):
        problem = f"not an event: metadata should be an object, not {event.metadata!r:.40}"
        return UnusableLogLine(event.line_number, problem)
    return event


def read_log(log_path: Path) -> NodeLog:
    """Read one log file.

    A missing file is an empty log, and bytes that are not UTF-8 are replaced.
    """
    if not log_path.is_file():
        return NodeLog(())
    with log_path.open(encoding="utf-8", errors="replace") as lines:
        return parse_log_lines(lines)
