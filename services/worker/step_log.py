"""Log of a worker's training steps, and of the gradient buckets that it exchanges during its compute."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from services.runtime.run_log import BUCKET_COLUMNS, STEP_COLUMNS, LogEventBatch, RunLog
from services.strategies.overlap.reduction import BucketExchange


@dataclass
class TrainingStepLog:
    """Writes a row per step, and a row per exchanged part of a gradient bucket, to the log of a worker."""

    log: RunLog
    interval_s: float = 1.0  # virtual seconds between two log lines; rows since the last line are lost with a node

    def __post_init__(self) -> None:
        # Rows and log lines have one time axis, whose zero is not that of the clock.
        self._log_time_offset_s = self.log.clock.timestamp_ms() / 1e3 - self.log.clock.now()
        self._step_rows = LogEventBatch(self.log, "node_steps", STEP_COLUMNS, self.interval_s)
        self._bucket_rows = LogEventBatch(self.log, "node_buckets", BUCKET_COLUMNS, self.interval_s)

    def add_step(self, row: Sequence[Any]) -> None:
        """Log a step; the row has the columns `STEP_COLUMNS`."""
        self._step_rows.add_event(row)

    def add_bucket_exchanges(self, step: int, exchanges: Iterable[BucketExchange]) -> None:
        """Log the exchanges of a step's gradient, part by part."""
        for exchange in exchanges:
            times_s = (round(self._log_time_offset_s + time_s, 6) for time_s in (exchange.begin_s, exchange.end_s))
            self._bucket_rows.add_event((step, exchange.bucket, exchange.part, *times_s, exchange.bytes_sent))

    def flush(self) -> None:
        """Write all rows."""
        self._step_rows.flush()
        self._bucket_rows.flush()
