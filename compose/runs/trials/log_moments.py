"""Moments of log lines on the monotonic clock of this host, by which declared events are scheduled."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LONGEST_LOG_DELAY_S = 30.0  # wall seconds between an event of a node and the moment when the runner reads its line


def _wall_clock_offset_s() -> float:
    return time.time() - time.monotonic()


@dataclass(frozen=True)
class LogMoments:
    """Conversion of the times of log lines, which are those of the wall clock."""

    dilation: float
    clock_offset_s: float = field(default_factory=_wall_clock_offset_s)

    def to_monotonic_s(self, log_event: Mapping[str, Any]) -> float:
        """Return the moment of a log line on the monotonic clock, whose times are not dilated.

        If the wall clock was set between the start of the runner and that of the node, the time of the line is of no
        use. The moment is then that of this call, which is late by the time in which the line was read.
        """
        moment_s = float(log_event["time_ms"] / 1e3 - self.clock_offset_s) * self.dilation
        now_s = time.monotonic()
        return moment_s if abs(now_s - moment_s) <= LONGEST_LOG_DELAY_S else now_s
