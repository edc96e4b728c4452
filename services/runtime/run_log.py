"""Log of a node: lines in the MLPerf format on standard output.

The node writes nothing else to its standard output. One line is `:::MLLOG ` and a JSON object with namespace, time_ms,
event_type, key, value and metadata. The lines follow the format of MLCommons' logging library, so that its tools can
read them; they are not MLPerf results.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from services.runtime.clock import Clock

LOG_LINE_PREFIX = ":::MLLOG "
# Of `node_steps`: a row per training step of a worker. `hidden_s` is communication that overlaps with its compute,
# `early_s` the part of `compute_s` before the begin of the step.
STEP_COLUMNS = (
    *("step", "epoch", "start_s", "step_s", "data_s", "compute_s", "exchange_s", "wait_s", "update_s", "late_s"),
    *("samples", "loss", "bytes_sent", "messages_sent", "staleness", "forward_s", "backward_s", "hidden_s"),
    "early_s",
)
# Of `node_buckets`: a row per part of a gradient bucket whose exchange overlaps with the compute of a worker.
BUCKET_COLUMNS = ("step", "bucket", "part", "begin_s", "end_s", "bytes_sent")
UPDATE_COLUMNS = (  # of `shard_updates` and `shard_drops`: a row per pushed gradient
    *("version", "worker", "push_step", "staleness", "samples", "time_s"),
)
POINT_EVENT, START_EVENT, END_EVENT = "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"


@dataclass(frozen=True)
class RunLog:
    """Log of one node: writes each event as a line with a timestamp of the node's clock."""

    namespace: str  # the node's name; empty for the coordinator, whose log is the log of the run
    clock: Clock
    write_line: Callable[[str], object]
    lateness_s: float = 0.0  # virtual seconds between an event and its line; the line states the time of the event

    def backdated(self, time_s: float) -> "RunLog":
        """Return a log whose next line states that its event was at an earlier time of the node's clock."""
        return replace(self, lateness_s=max(0.0, self.clock.now() - time_s))

    def log_event(self, key: str, value: object = None, **metadata: object) -> None:
        """Write a log line for an event at a point in time."""
        self._write_event(POINT_EVENT, key, value, metadata)

    def log_start(self, key: str, value: object = None, **metadata: object) -> None:
        """Write a log line for the start of a time interval, for example an epoch."""
        self._write_event(START_EVENT, key, value, metadata)

    def log_end(self, key: str, value: object = None, **metadata: object) -> None:
        """Write a log line for the end of a time interval, for example an epoch."""
        self._write_event(END_EVENT, key, value, metadata)

    def _write_event(self, event_type: str, key: str, value: object, metadata: dict[str, object]) -> None:
        event = {
            "namespace": self.namespace,
            "time_ms": round(self.clock.timestamp_ms() - self.lateness_s * 1e3, 3),
            "event_type": event_type,
            "key": key,
            "value": value,
            "metadata": metadata,
        }
        self.write_line(f"{LOG_LINE_PREFIX}{json.dumps(event)}\n")


@dataclass
class LogEventBatch:
    """Batch of events with the same log key, written as one line of the log.

    The events are rows of a table. One line per step would cost too much time.
    """

    log: RunLog
    key: str
    columns: Sequence[str]
    interval_s: float = 1.0  # virtual seconds between two log lines
    _rows: list[Sequence[Any]] = field(default_factory=list)
    _last_flush_s: float | None = None

    def add_event(self, event_row: Sequence[Any]) -> None:
        """Add one event to the batch, as a row.

        Log all kept rows if `interval_s` has passed since the last log line.
        """
        self._rows.append(event_row)
        now_s = self.log.clock.now()
        if self._last_flush_s is None:
            self._last_flush_s = now_s
        elif now_s - self._last_flush_s >= self.interval_s:
            self.flush()
            self._last_flush_s = now_s

    def flush(self) -> None:
        """Write all rows of the batch as one line of the log."""
        if self._rows:
            self.log.log_event(self.key, {"columns": list(self.columns), "rows": self._rows})
            self._rows = []


@dataclass
class StepTimer:
    """Timer of the phases of one training step, in virtual seconds."""

    clock: Clock
    synchronize: Callable[[], None]  # of the compute device, so that a phase includes the work that it has submitted
    seconds: dict[str, float] = field(default_factory=dict)  # by phase

    @contextmanager
    def measure_phase(self, step_phase: str) -> Iterator[None]:
        """Measure the duration of the `with` block, as part of a phase of the step.

        The duration is added to the phase, such as `exchange`.
        """
        start_s = self.clock.now()
        try:
            yield
            self.synchronize()
        finally:
            self.add_seconds(step_phase, self.clock.now() - start_s)

    def add_seconds(self, step_phase: str, seconds: float) -> None:
        """Add a duration that was measured elsewhere to a phase of the step."""
        self.seconds[step_phase] = self.seconds.get(step_phase, 0.0) + seconds
