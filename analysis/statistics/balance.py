"""How many workers are worth their cost? Three rules that people use, each stated.

A single "break-even point" hides its rule (arXiv 2509.03263), so all are shown.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.statistics.centre import Floats

THRESHOLD = 0.5  # least efficiency
ALPHA = 2  # how much more time counts than workers

Rule = Callable[[Floats, Floats], int | None]  # (workers / base workers, speedup) -> place in them


@dataclass(frozen=True)
class Pick:
    """The number of workers that a rule picks."""

    rule: str
    workers: int
    interval: tuple[int, int] | None  # None where nothing was repeated


def efficient(workers: Floats, speedup: Floats) -> int | None:
    """The largest N up to which efficiency stays at or above the threshold; None when already the first is below."""
    below = np.flatnonzero(speedup / workers < THRESHOLD)
    last = (int(below[0]) if below.size else workers.size) - 1
    return last if last >= 0 else None


def knee(workers: Floats, speedup: Floats) -> int | None:
    """The N farthest above the chord from first to last point on log axes; None without three points or a bend."""
    x, y = np.log(workers), np.log(speedup)
    if x.size < 3:  # noqa: PLR2004 -- a bend needs three points
        return None
    above = y - (y[0] + (y[-1] - y[0]) * (x - x[0]) / (x[-1] - x[0]))
    return int(np.argmax(above)) if above.max() > np.finfo(float).eps * x.size else None


def cheapest(workers: Floats, speedup: Floats) -> int:
    """The N with the least T^2 N: twice the workers must buy more than 1/sqrt(2) of the time."""
    return int(np.argmin(workers / speedup**ALPHA))


RULES: dict[str, Rule] = {
    f"efficiency >= {THRESHOLD:g}": efficient,
    "knee": knee,
    f"least T^{ALPHA} N": cheapest,
}


def picks(counts: Sequence[int], base: int, speedup: Floats, draws: Floats | None) -> tuple[Pick, ...]:
    """What each rule picks among `counts`; a rule without an answer is left out, and one point leaves no choice.

    `draws`, shape (draws, counts): the speedups of resampled runs, for the intervals.
    """
    if len(counts) == 1:
        return ()
    relative = np.array(counts) / base
    found = {name: rule(relative, speedup) for name, rule in RULES.items()}
    return tuple(
        Pick(name, counts[place], _interval(RULES[name], relative, draws, counts))
        for name, place in found.items()
        if place is not None
    )


def _interval(rule: Rule, relative: Floats, draws: Floats | None, counts: Sequence[int]) -> tuple[int, int] | None:
    """The numbers of workers that hold the middle 95 % of the resampled answers; None where too few have one."""
    if draws is None:
        return None
    places = [float(place) for place in (rule(relative, speedup) for speedup in draws) if place is not None]
    if 2 * len(places) < len(draws):
        return None
    low, high = np.percentile(places, [2.5, 97.5], method="nearest").tolist()
    return counts[round(low)], counts[round(high)]
