"""Slowdowns and pauses of a worker's compute.

They are intervals of time in which the compute takes longer, or stops.
"""

from dataclasses import dataclass, field
from math import inf, prod
from typing import NamedTuple


class SlowdownInterval(NamedTuple):
    """Interval of virtual time in which compute takes `factor` times as long.

    A pause has an infinite factor.
    """

    start_s: float
    end_s: float
    factor: float


@dataclass
class WorkerSlowdowns:
    """Slowdowns and pauses of one worker in virtual time.

    One that is declared for a step is added when it starts.
    """

    intervals: list[SlowdownInterval] = field(default_factory=list)

    def add_slowdown(self, start_s: float, duration_s: float | None, time_multiplier: float) -> None:
        """Add a slowdown: an interval in which compute times are multiplied by a factor.

        The interval starts at `start_s` and lasts `duration_s`; the factor is `time_multiplier`. A duration of None
        means to the end of the run.
        """
        self.intervals.append(
            SlowdownInterval(start_s, inf if duration_s is None else start_s + duration_s, time_multiplier)
        )

    def end_of_compute_s(self, start_s: float, compute_s: float) -> float:
        """Return the end time of a computation, with slowdowns and pauses included.

        The computation starts at `start_s` and would last `compute_s` without slowdowns.
        """
        now_s = start_s
        for change_s in self._slowdown_change_times_s(start_s):
            factor = self._slowdown_factor_at(now_s)
            if factor < inf and now_s + compute_s * factor <= change_s:
                break
            compute_s -= (change_s - now_s) / factor
            now_s = change_s
        return now_s + compute_s * self._slowdown_factor_at(now_s)

    def end_of_pause_s(self, now_s: float) -> float:
        """Return the first time, from a given time on, at which no pause is active.

        The given time is `now_s`; at the returned time the worker may continue.
        """
        while self._slowdown_factor_at(now_s) == inf:
            pauses = (pause for pause in self.intervals if pause.factor == inf and pause.start_s <= now_s < pause.end_s)
            now_s = max(pause.end_s for pause in pauses)
        return now_s

    def _slowdown_change_times_s(self, after_s: float) -> list[float]:
        """Return the times after `after_s` at which the slowdown factor may change, in order."""
        times_s = (time_s for interval in self.intervals for time_s in (interval.start_s, interval.end_s))
        return sorted({time_s for time_s in times_s if after_s < time_s < inf})

    def _slowdown_factor_at(self, time_s: float) -> float:
        active = (interval for interval in self.intervals if interval.start_s <= time_s < interval.end_s)
        return prod(interval.factor for interval in active)
