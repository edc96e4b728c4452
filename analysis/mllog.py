"""Which events did a node report? Reads MLPerf-style log lines, ours and MLCommons' alike.

A line is `:::MLLOG ` and one JSON object (mlcommons/logging, `mlp_parser`). Whatever stands before the token is
dropped, so the service prefix of `docker compose logs` does no harm.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOKEN = ":::MLLOG "  # noqa: S105 -- no secret: what marks a line


@dataclass(frozen=True)
class Event:
    """One line of a log; differences of `time_ms` are virtual milliseconds."""

    namespace: str
    time_ms: float
    event_type: str
    key: str
    value: Any
    metadata: Mapping[str, Any]

    def line(self) -> str:
        """The event as a log line again."""
        return TOKEN + json.dumps(vars(self))


@dataclass(frozen=True)
class Log:
    """The events of one file in their order, and how many marked lines could not be read."""

    events: tuple[Event, ...]
    skipped: int = 0

    def of(self, key: str) -> list[Event]:
        """All events with this key."""
        return [event for event in self.events if event.key == key]

    def last(self, key: str) -> Event | None:
        """The latest event with this key."""
        return next((event for event in reversed(self.events) if event.key == key), None)


def parse(lines: Iterable[str]) -> Log:
    """Reads the lines that carry the token; broken ones are counted, never fatal."""
    marked = [line for line in lines if TOKEN in line]
    events = tuple(event for event in map(parse_line, marked) if event is not None)
    return Log(events, skipped=len(marked) - len(events))


def parse_line(line: str) -> Event | None:
    """The event after the last token of the line, as MLCommons' parser does; None where it is not a valid event."""
    try:
        fields = json.loads(line.rpartition(TOKEN)[2])
        return Event(
            namespace=str(fields.get("namespace") or ""),
            time_ms=float(fields["time_ms"]),
            event_type=str(fields.get("event_type", "")),
            key=str(fields["key"]),
            value=fields.get("value"),
            metadata=fields.get("metadata") or {},
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def read(path: Path) -> Log:
    """Reads one log file; bytes that are not UTF-8 become replacement characters. A missing file is an empty log."""
    if not path.is_file():
        return Log(())
    with path.open(encoding="utf-8", errors="replace") as lines:
        return parse(lines)
