"""Connections of data streams that ended early and were opened again, as the nodes of a trial logged them.

Times are virtual seconds since the event `run_start`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from analysis.reading.logs.mllog import NodeLog


@dataclass(frozen=True)
class ConnectionBreak:
    """Connection that ended before its stream. The names of the fields are keys in summary.json."""

    node: str  # that sends over the stream
    peer: str
    time_s: float  # of the end
    reason: str
    seconds_without: float | None  # until the next connection had sent all missing messages; None: there was none
    resent_messages: int | None


def read_connection_breaks(log_by_node_name: Mapping[str, NodeLog], start_s: float) -> tuple[ConnectionBreak, ...]:
    """Return the ends of connections in the order of time; `start_s` is the time of `run_start`."""
    breaks: list[ConnectionBreak] = []
    for node_name, log in log_by_node_name.items():
        reopenings = log.events_with_key("connection_reopened")
        for drop in log.events_with_key("connection_dropped"):
            peer = str(drop.value["peer"])
            # A stream is opened again before its next connection can end.
            later = (event for event in reopenings if event.value["peer"] == peer and event.time_ms >= drop.time_ms)
            reopening = min(later, key=lambda event: event.time_ms, default=None)
            breaks.append(
                ConnectionBreak(
                    node_name,
                    peer,
                    drop.time_ms / 1000 - start_s,
                    str(drop.value["reason"]),
                    float(reopening.value["seconds"]) if reopening else None,
                    int(reopening.value["resent_messages"]) if reopening else None,
                )
            )
    return tuple(sorted(breaks, key=lambda each: (each.time_s, each.node, each.peer)))
