"""Records of what a metered process did: its collectives and steps."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .protocol import COLLECTIVE_COLUMNS
from .time_intervals import Interval, covered_seconds, seconds_outside


@dataclass(slots=True)
class CollectiveRecord:
    """One call of an operation of a process group. For the fields see `protocol.COLLECTIVE_COLUMNS`."""

    operation: str
    bytes: int
    dtype: str
    group_size: int
    is_asynchronous: bool
    launch_s: float
    begin_s: float
    end_s: float | None = None
    is_gloo_fallback: bool = False
    is_extra: bool = False
    is_waited_for: bool = False  # the script waited for it through its own handle
    is_done: Callable[[], bool] | None = None  # whether it is complete, as long as that is not recorded

    def row(self) -> list[Any]:
        """Return the values in the order of the columns."""
        return [getattr(self, column) for column in COLLECTIVE_COLUMNS]


@dataclass(slots=True)
class StepRecord:
    """One step: the times of its parts, its collectives, and the time in which the main thread waited for them."""

    number: int
    begin_s: float
    backward_end_s: float | None
    update_begin_s: float
    end_s: float
    start_collectives: list[CollectiveRecord]  # of the first step: those before it
    collectives: list[CollectiveRecord]
    waits: list[Interval] = field(default_factory=list)
    update_scheduled_s: float | None = None  # of a paced step: the declared end of its backward pass
    follows_evaluation: bool = False  # forward passes without gradient lie between the update before it and its own

    def exposed_s(self) -> float:
        """Return the seconds in which the main thread waited for collectives.

        It waits in synchronous collectives and for handles. DDP waits inside of `backward()`, where the wait is not
        visible. The main thread is taken to wait for asynchronous collectives whose handle the script does not use:
        from the launch of the last one until all of them are complete, or until the update. In a paced step, it
        computes until the scheduled time of the update.
        """
        return covered_seconds(self._exposed())

    def hidden_s(self) -> float:
        """Return the other seconds with a collective in flight."""
        return seconds_outside(self._in_flight(), self._exposed())

    def _exposed(self) -> list[Interval]:
        return [*self.waits, *self._unseen_wait()]

    def _unseen_wait(self) -> list[Interval]:
        unseen = [record for record in self.collectives if self._is_unseen(record)]
        if not unseen:
            return []
        last_end_s = max(record.end_s or self.update_begin_s for record in unseen)
        begin_s = max(unseen[-1].begin_s, self.update_scheduled_s or 0.0)
        return [(begin_s, min(last_end_s, self.update_begin_s))] if begin_s < last_end_s else []

    def _is_unseen(self, record: CollectiveRecord) -> bool:
        """Return whether the script waits for a collective of the step, if it does, where the wait is not visible."""
        return record.is_asynchronous and not record.is_waited_for and record.begin_s >= self.begin_s

    def _in_flight(self) -> list[Interval]:
        """Return when collectives were in flight; those of an evaluation may have begun before the step."""
        return [
            (max(record.begin_s, self.begin_s), min(record.end_s or self.end_s, self.end_s))
            for record in self.collectives
        ]
