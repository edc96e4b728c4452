"""Pacing: sleeps that let the collectives and the update of a step begin at their scheduled times."""

import time
from collections.abc import Callable

from .step_schedule import CollectiveKind, CollectiveMatcher, CollectiveShares, StepSchedule

SPIN_S = 100e-6  # a sleep ends up to 60 µs late; the last part is a loop


def sleep_until(deadline_s: float) -> None:
    """Return at this time of the monotonic clock, a few microseconds late at most on an idle core."""
    remaining_s = deadline_s - time.monotonic()
    if remaining_s > SPIN_S:
        time.sleep(remaining_s - SPIN_S)
    while time.monotonic() < deadline_s:
        pass


class Pacer:
    """Scheduled times of one step after the other on the clock.

    A scheduled time is the begin of the step, plus the seconds in which the main thread was blocked by collectives in
    this step so far, plus the share of the step's compute time.
    """

    def __init__(self, schedule: StepSchedule | None, sleep: Callable[[float], None] = sleep_until) -> None:
        self._schedule, self._sleep = schedule, sleep
        self._matcher = None if schedule is None else CollectiveMatcher(schedule)
        self.compute_s: float | None = None  # of the current step; None: not paced

    def begin_step(self, number: int) -> None:
        """Begin a step, none of whose collectives was launched yet."""
        if self._matcher is not None:
            self._matcher.begin_step(number)

    def match_collective(self, kind: CollectiveKind, position: int) -> CollectiveShares | None:
        """Return the shares of the step's compute before a collective; None if the schedule lacks it.

        Without a schedule, the shares are 0 for all collectives.
        """
        return CollectiveShares(0.0, 0.0) if self._matcher is None else self._matcher.match(kind, position)

    def pace_until(self, share: float, begin_s: float, blocked_s: float) -> None:
        """Sleep until the scheduled time of a launch or a wait with this share of the step's compute before it."""
        if self._schedule is not None and self.compute_s is not None:
            self._sleep(begin_s + blocked_s + share * self.compute_s)

    def pace_update(self, begin_s: float, blocked_s: float) -> None:
        """Sleep until the scheduled time of the update."""
        if self._schedule is not None:
            self.pace_until(self._schedule.update_share, begin_s, blocked_s)

    def pace_step_end(self, update_begin_s: float, blocked_s: float) -> None:
        """Sleep until the update, and what blocked it, has taken its part of the step."""
        if self._schedule is not None and self.compute_s is not None:
            self._sleep(update_begin_s + blocked_s + (1 - self._schedule.update_share) * self.compute_s)
