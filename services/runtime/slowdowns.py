"""What slows a worker down, how much and until when? Slowdowns and pauses as spans of time that stretch its work."""

from dataclasses import dataclass, field
from math import inf, prod
from typing import NamedTuple


class Span(NamedTuple):
    """From `begins` until `ends`, work takes `factor` times as long; an infinite factor stops it. Virtual seconds."""

    begins: float
    ends: float
    factor: float


@dataclass
class Hindrances:
    """The spans of one worker, as far as they are known: those that wait for a step come when it begins."""

    spans: list[Span] = field(default_factory=list)

    def add(self, begins: float, lasts: float | None, factor: float) -> None:
        """Work takes `factor` times as long from `begins` on, for `lasts` or for ever."""
        self.spans.append(Span(begins, inf if lasts is None else begins + lasts, factor))

    def ends(self, start: float, work_s: float) -> float:
        """When work is done that begins at `start` and would take `work_s` without hindrance."""
        now = start
        for moment in self._changes(start):
            factor = self._factor(now)
            if factor < inf and now + work_s * factor <= moment:
                break
            work_s -= (moment - now) / factor
            now = moment
        return now + work_s * self._factor(now)

    def awake(self, now: float) -> float:
        """When the worker may go on: now, or when the last pause is over that lies at this time."""
        while self._factor(now) == inf:
            now = max(span.ends for span in self.spans if span.begins <= now < span.ends and span.factor == inf)
        return now

    def _changes(self, after: float) -> list[float]:
        """Moments at which the factor may change, in order."""
        return sorted({moment for span in self.spans for moment in span[:2] if after < moment < inf})

    def _factor(self, now: float) -> float:
        return prod(span.factor for span in self.spans if span.begins <= now < span.ends)
