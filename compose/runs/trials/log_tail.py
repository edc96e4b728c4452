"""Reader of a log file that another process writes."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.runtime.run_log import LOG_LINE_PREFIX


@dataclass
class LogTail:
    """Reader of the new events in a log file that a node is still writing."""

    path: Path
    _position: int = 0

    def read_new_events(self) -> Iterator[dict[str, Any]]:
        """Yield the log events that were written since the last call.

        An incomplete line is left for the next call. A damaged line is left out.
        """
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._position += len(line)
                _, token, event = line.decode(errors="replace").partition(LOG_LINE_PREFIX)
                if token and (parsed := _parse_event(event)):
                    yield parsed


def _parse_event(json_text: str) -> dict[str, Any] | None:
    """Return a log event; None for a damaged line, which the analysis of the trial reports."""
    try:
        event = json.loads(json_text)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("key"), str) else None
