"""Which events did a node report? Reads MLPerf-style log lines, ours and MLCommons' alike.

A line is `:::MLLOG ` and one JSON object (mlcommons/logging, `mlp_parser`). Whatever stands before the token is
dropped, so the service prefix of `docker compose logs` does no harm.
"""

import json
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from pydantic_core import from_json

from analysis.reading.batch import KEYS, batch_of

TOKEN = ":::MLLOG "  # noqa: S105 -- no secret: what marks a line


@dataclass(frozen=True)
class Event:
    """One line of a log; differences of `time_ms` are virtual milliseconds.

    A `value` of columns and rows is a Batch, but where `finite` is false or something is wrong with it.
    """

    namespace: str
    time_ms: float
    event_type: str
    key: str
    value: Any
    metadata: Mapping[str, Any]
    number: int = field(default=0, compare=False)  # of the line in its file, from 1
    text: str = field(default="", compare=False, repr=False)  # the object as it was printed
    finite: bool = field(default=True, compare=False, repr=False)  # whether all numbers are JSON's: no NaN, no infinity

    def line(self) -> str:
        """The event as a log line again, as it was printed where it was."""
        fields = ("namespace", "time_ms", "event_type", "key", "value", "metadata")
        return TOKEN + (self.text or json.dumps({name: getattr(self, name) for name in fields}))


@dataclass(frozen=True)
class Broken:
    """A marked line that holds no event."""

    number: int  # of the line in its file, from 1
    what: str


@dataclass(frozen=True)
class Log:
    """The events of one file in their order, and the marked lines that could not be read."""

    events: tuple[Event, ...]
    broken: tuple[Broken, ...] = ()

    @property
    def skipped(self) -> int:
        """How many marked lines could not be read."""
        return len(self.broken)

    def of(self, key: str) -> list[Event]:
        """All events with this key."""
        return [event for event in self.events if event.key == key]

    def last(self, key: str) -> Event | None:
        """The latest event with this key."""
        return next((event for event in reversed(self.events) if event.key == key), None)


def parse(lines: Iterable[str]) -> Log:
    """Reads the lines that carry the token; broken ones are noted, never fatal."""
    found = [_event(number, line) for number, line in enumerate(lines, start=1) if TOKEN in line]
    return Log(
        tuple(each for each in found if isinstance(each, Event)),
        tuple(each for each in found if isinstance(each, Broken)),
    )


def parse_line(line: str) -> Event | None:
    """The event after the last token of the line, as MLCommons' parser does; None where it is not a valid event."""
    found = _event(0, line)
    return found if isinstance(found, Event) else None


def _event(number: int, line: str) -> Event | Broken:
    text = line.rpartition(TOKEN)[2].strip()
    try:
        fields, finite = _loaded(text)
    except ValueError as error:
        return Broken(number, "cut off in the middle" if _is_begun(text) else f"no JSON: {error}")
    try:
        event = Event(
            namespace=str(fields.get("namespace") or ""),
            time_ms=float(fields["time_ms"]),
            event_type=str(fields.get("event_type", "")),
            key=str(fields["key"]),
            value=_held(fields.get("value")) if finite else fields.get("value"),  # null and NaN are one in a batch
            metadata={} if (told := fields.get("metadata")) is None else told,
            number=number,
            text=text,
            finite=finite,
        )
    except (KeyError, ValueError, TypeError, AttributeError):
        return Broken(number, "no event: an object with a key and with time_ms, a number, is one")
    return _sound(event)


def _is_begun(text: str) -> bool:
    """Whether an object begins here and does not end."""
    try:
        json.JSONDecoder().raw_decode(text)
    except ValueError:
        return text.startswith("{") and not text.endswith("}")
    return False


def _held(value: Any) -> Any:
    """The same, as a batch where it is one."""
    if isinstance(value, dict) and value.keys() == KEYS:
        with suppress(ValueError):  # whoever wants a batch says what is wrong with it
            return batch_of(value)
    return value


def _loaded(text: str) -> tuple[Any, bool]:
    """What the text says, and whether it is JSON; orjson is many times as fast as the others, and logs are long."""
    try:
        return orjson.loads(text), True
    except ValueError:
        return from_json(text), False  # nodes log NaN and infinity, and only this one tells where a line is broken


def _sound(event: Event) -> Event | Broken:
    """Readers compute with times and look names up in metadata; what forbids that is damage here, not later."""
    if not math.isfinite(event.time_ms):
        return Broken(event.number, f"no event: time_ms should be a finite number, not {event.time_ms}")
    if not isinstance(event.metadata, dict):
        return Broken(event.number, f"no event: metadata should be an object, not {event.metadata!r:.40}")
    return event


def read(path: Path) -> Log:
    """Reads one log file; bytes that are not UTF-8 become replacement characters. A missing file is an empty log."""
    if not path.is_file():
        return Log(())
    with path.open(encoding="utf-8", errors="replace") as lines:
        return parse(lines)
