"""The log of a node: MLPerf-style lines on its standard output, and nothing else there.

One line is `:::MLLOG ` and a JSON object with namespace, time_ms, event_type, key, value and metadata. They follow the
format of MLCommons' logging library so that its tools read them; they are not MLPerf results.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from services.runtime.clock import Clock

TOKEN = ":::MLLOG "  # noqa: S105 - the mark of a log line
POINT, START, END = "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"


@dataclass(frozen=True)
class RunLog:
    """Writes the events of one node, stamped by its clock."""

    namespace: str  # the node's name; empty for the coordinator, whose log is the run's
    clock: Clock
    write: Callable[[str], object]

    def point(self, key: str, value: object = None, **metadata: object) -> None:
        """Something is so, or has happened."""
        self._emit(POINT, key, value, metadata)

    def start(self, key: str, value: object = None, **metadata: object) -> None:
        """Something begins."""
        self._emit(START, key, value, metadata)

    def end(self, key: str, value: object = None, **metadata: object) -> None:
        """Something is over."""
        self._emit(END, key, value, metadata)

    def _emit(self, event_type: str, key: str, value: object, metadata: dict[str, object]) -> None:
        line = {
            "namespace": self.namespace,
            "time_ms": round(self.clock.epoch_ms(), 3),
            "event_type": event_type,
            "key": key,
            "value": value,
            "metadata": metadata,
        }
        self.write(f"{TOKEN}{json.dumps(line)}\n")


@dataclass
class Batch:
    """Rows of one event kind, written together: a line per step would cost a step's time."""

    log: RunLog
    key: str
    columns: Sequence[str]
    interval_s: float = 1.0  # virtual seconds between two lines
    _rows: list[Sequence[Any]] = field(default_factory=list)
    _written_at: float | None = None

    def add(self, row: Sequence[Any]) -> None:
        """Keep a row; write what is kept when the last line is old enough."""
        self._rows.append(row)
        now = self.log.clock.now()
        if self._written_at is None:
            self._written_at = now
        elif now - self._written_at >= self.interval_s:
            self.flush()
            self._written_at = now

    def flush(self) -> None:
        """Write what is kept."""
        if self._rows:
            self.log.point(self.key, {"columns": list(self.columns), "rows": self._rows})
            self._rows = []


@dataclass
class StepTimes:
    """Where the time of one step went, in virtual seconds by phase."""

    clock: Clock
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def span(self, phase: str) -> Iterator[None]:
        """Add the time that the body takes to `phase`."""
        started = self.clock.now()
        try:
            yield
        finally:
            self.add(phase, self.clock.now() - started)

    def add(self, phase: str, seconds: float) -> None:
        """Add time that was measured elsewhere."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds
