"""How many workers are worth their cost? Three rules that people use, each stated.

A single "break-even point" hides its rule (arXiv 2509.03263), so all are shown.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analysis.metrics.centre import Floats
from analysis.metrics.speedup import Curve

THRESHOLD = 0.5  # least efficiency
ALPHA = 2  # how much more time counts than workers

Rule = Callable[[Floats, Floats], int | None]  # (workers / base workers, speedup) -> place in them


@dataclass(frozen=True)
class Balance:
    """The number of workers that a rule picks; the interval comes from resampling the repeats."""

    strategy: str
    rule: str
    workers: int
    interval: tuple[int, int] | None
    condition: str


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


def balance(curve: Curve) -> tuple[Balance, ...]:
    """What each rule picks on this curve; a rule without an answer is left out, and one point leaves no choice."""
    if len(curve.points) == 1:
        return ()
    counts = [point.workers for point in curve.points]
    relative = np.array(counts) / curve.base.workers
    speedup = np.array([point.speedup for point in curve.points])
    draws = np.array([curve.draws[workers] for workers in counts]).T if curve.draws else None
    picks = {name: rule(relative, speedup) for name, rule in RULES.items()}
    return tuple(
        Balance(curve.strategy, name, counts[pick], _interval(RULES[name], relative, draws, counts), curve.condition)
        for name, pick in picks.items()
        if pick is not None
    )


def _interval(rule: Rule, relative: Floats, draws: Floats | None, counts: list[int]) -> tuple[int, int] | None:
    """The numbers of workers that hold the middle 95 % of the resampled answers."""
    if draws is None:
        return None
    picks = [float(pick) for pick in (rule(relative, speedup) for speedup in draws) if pick is not None]
    low, high = np.percentile(picks, [2.5, 97.5], method="nearest").tolist()
    return counts[round(low)], counts[round(high)]
