"""Starts of the declared partitions of a trial, for the text of its error."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from services.plan import Plan
from services.plan.partitions import explain_partitions, partition_events


@dataclass
class PartitionStarts:
    """When the partitions of one trial have begun, by the events of the coordinator's log."""

    plan: Plan
    _starts_s: dict[int, float] = field(default_factory=dict)  # by number of the event, on the clock of log lines

    def __post_init__(self) -> None:
        self._partitions = {event.number: event for event in partition_events(self.plan)}
        self._clock_offset_s = time.time() - time.monotonic()  # from the monotonic clock to the clock of log lines

    def handle_log_event(self, log_event: Mapping[str, Any]) -> None:
        """Handle an event of the coordinator's log: the start of training, or the step at which a partition begins."""
        if not self._partitions:
            return
        logged_at_s = log_event["time_ms"] / 1e3
        if log_event["key"] == "run_start":
            for number, event in self._partitions.items():
                if event.time_s is not None:
                    self._starts_s.setdefault(number, logged_at_s + event.time_s)
        elif log_event["key"] == "event_due" and log_event["value"]["number"] in self._partitions:
            self._starts_s[log_event["value"]["number"]] = logged_at_s

    def explain_partitions(self) -> str:
        """Return which nodes are or were separated, as the end of an error's text; empty if none explains an error."""
        now_s = self._clock_offset_s + time.monotonic() / self.plan.dilation
        return explain_partitions(self.plan, self._starts_s, now_s)
