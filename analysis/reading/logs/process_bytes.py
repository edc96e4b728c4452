"""Payload bytes that each process of each node logged: its total, and the sum over its steps."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from analysis.reading.logs.batches import read_logged_rows
from analysis.reading.logs.mllog import MllogEvent, NodeLog


@dataclass(frozen=True)
class ProcessBytes:
    """Payload bytes that one process of a node sent. A node that is started again has another process."""

    node: str
    total: int | None  # as the process logged it at its end; None: it logged none, for example because it was killed
    in_steps: int | None  # sum over the finished steps that it logged; None: it logged no step

    @property
    def at_least(self) -> int | None:
        """The total, or else the bytes of the finished steps; None if neither is known."""
        return self.in_steps if self.total is None else self.total


def read_process_bytes(log_by_node_name: Mapping[str, NodeLog]) -> tuple[ProcessBytes, ...]:
    """Return the bytes that each process of each node logged, except those of the coordinator."""
    return tuple(
        process
        for node_name, log in sorted(log_by_node_name.items())
        if node_name != "coordinator"
        for process in _read_processes(node_name, log)
    )


def _read_processes(node_name: str, log: NodeLog) -> Iterator[ProcessBytes]:
    for events in _split_into_processes(log):
        process_log = NodeLog(tuple(events))
        stop, total = process_log.last_event("node_stop"), None
        if stop and isinstance(stop.value, dict) and stop.value.get("payload_bytes_sent") is not None:
            total = int(stop.value["payload_bytes_sent"])
        rows, _ = read_logged_rows(process_log, "node_steps", ["bytes_sent"], ["bytes_sent"])
        yield ProcessBytes(node_name, total, int(np.nansum(rows)) if len(rows) else None)


def _split_into_processes(log: NodeLog) -> Iterator[list[MllogEvent]]:
    """Yield the events of each process of a node; a process begins with `node_start`."""
    starts = [number for number, event in enumerate(log.events) if event.key == "node_start"]
    begins = [0, *starts[1:]]
    for begin, end in zip(begins, [*begins[1:], None], strict=True):
        yield list(log.events[begin:end])
