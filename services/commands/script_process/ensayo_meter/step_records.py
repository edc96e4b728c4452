"""Records of what a metered process did: its collectives and steps."""

from collections.abc import Callable, Sequence
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
    root_rank: int | None = None
    reduce_operation: str | None = None
    wait_begin_s: float | None = None  # the script begins to wait for it through its own handle
    wait_share: float | None = None  # of the step's compute before this wait, by the step schedule
    is_done: Callable[[], bool] | None = None  # whether it is complete, as long as that is not recorded

    def row(self) -> list[Any]:
        """Return the values in the order of the columns."""
        return [getattr(self, column) for column in COLLECTIVE_COLUMNS]


def unseen_collectives(collectives: Sequence[CollectiveRecord], step_begin_s: float) -> list[CollectiveRecord]:
    """Return the asynchronous collectives of a step whose handle the script has not used before its update.

    DDP waits for them in C++, inside of `backward()`.
    """
    return [
        record
        for record in collectives
        if record.is_asynchronous and record.wait_begin_s is None and record.begin_s >= step_begin_s
    ]


def unseen_wait(collectives: Sequence[CollectiveRecord], step_begin_s: float) -> Interval | None:
    """Return when the main thread waited for the collectives whose wait is not visible, at the begin of the update.

    DDP launches its last bucket after the last gradient, and waits at once. So the wait is taken to begin with the
    launch of the last one. It ends when all of them are complete. A collective that is still in flight at the update is
    one that the script does not wait for.
    """
    unseen = unseen_collectives(collectives, step_begin_s)
    end_s = max((record.end_s for record in unseen if record.end_s is not None), default=0.0)
    return (unseen[-1].begin_s, end_s) if unseen and unseen[-1].begin_s < end_s else None


@dataclass(slots=True)
class StepRecord:
    """One step: the times of its parts, its collectives, and the time in which the main thread waited for them."""

    number: int
    begin_s: float
    update_begin_s: float
    end_s: float
    start_collectives: list[CollectiveRecord]  # of the first step: those before it
    collectives: list[CollectiveRecord]
    waits: list[Interval] = field(default_factory=list)
    follows_evaluation: bool = False  # forward passes without gradient lie between the update before it and its own

    def exposed_s(self) -> float:
        """Return the seconds in which the main thread waited for collectives."""
        return covered_seconds(self.waits)

    def hidden_s(self) -> float:
        """Return the other seconds with a collective in flight."""
        return seconds_outside(self._in_flight(), self.waits)

    def wait_begins_s(self) -> list[float]:
        """Return when the main thread begins to wait for each collective, its end at the latest.

        Unseen waits begin with the launch of the last of their collectives.
        """
        unseen = unseen_collectives(self.collectives, self.begin_s)
        begins_s = [self._wait_begin_s(record, unseen) for record in self.collectives]
        return [min(begin_s, self.end_s) for begin_s in begins_s]

    def _wait_begin_s(self, record: CollectiveRecord, unseen: Sequence[CollectiveRecord]) -> float:
        if not record.is_asynchronous:
            return record.launch_s
        if record.wait_begin_s is not None:
            return record.wait_begin_s
        return unseen[-1].launch_s if record in unseen else record.launch_s

    def _in_flight(self) -> list[Interval]:
        """Return when collectives were in flight; those of an evaluation may have begun before the step."""
        return [
            (max(record.begin_s, self.begin_s), min(record.end_s or self.end_s, self.end_s))
            for record in self.collectives
        ]
