"""Pacing: sleeps that put the collectives and the update of a step at their places in a step of declared length."""

import time
from collections.abc import Callable

from .settings import PaceProfile

SPIN_S = 100e-6  # a sleep ends up to 60 µs late; the last part is a loop


def sleep_until(deadline_s: float) -> None:
    """Return at this time of the monotonic clock, a few microseconds late at most on an idle core."""
    remaining_s = deadline_s - time.monotonic()
    if remaining_s > SPIN_S:
        time.sleep(remaining_s - SPIN_S)
    while time.monotonic() < deadline_s:
        pass


class Pacer:
    """Places of one step after the other on the clock.

    A place is the begin of the step, plus the seconds in which the main thread was blocked by collectives in this step
    so far, plus the share of the step's compute time.
    """

    def __init__(self, profile: PaceProfile | None, sleep: Callable[[float], None] = sleep_until) -> None:
        self._profile, self._sleep = profile, sleep
        self.compute_s: float | None = None  # of the current step; None: not paced

    def pace_launch(self, index: int, begin_s: float, blocked_s: float) -> None:
        """Sleep until the place of the step's collective with this index."""
        if self._profile is not None and self.compute_s is not None:
            self._sleep(begin_s + blocked_s + self._profile.launch_share(index) * self.compute_s)

    def pace_update(self, begin_s: float, blocked_s: float) -> float | None:
        """Sleep until the place of the update, and return this place; None if steps are not paced."""
        if self._profile is None or self.compute_s is None:
            return None
        place_s = begin_s + blocked_s + self._profile.update_share * self.compute_s
        self._sleep(place_s)
        return place_s

    def pace_step_end(self, update_begin_s: float, blocked_s: float) -> None:
        """Sleep until the update, and what blocked it, has taken its part of the step."""
        if self._profile is not None and self.compute_s is not None:
            self._sleep(update_begin_s + blocked_s + (1 - self._profile.update_share) * self.compute_s)
