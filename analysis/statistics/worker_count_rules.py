"""Three common rules for the number of workers that is worth its cost (balance point).

The rules use the speedup curve. The number depends on the rule (arXiv 2509.03263), so the results of all three rules
are shown.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.statistics.centre import Floats

MIN_EFFICIENCY = 0.5  # least efficiency in the rule "efficiency"
TIME_EXPONENT = 2  # exponent of the time in the rule "least T^2 N"

# (workers / base workers, speedup), shape (n,) each -> index of the chosen number of workers
WorkerCountRule = Callable[[Floats, Floats], int | None]


@dataclass(frozen=True)
class ChosenWorkerCount:
    """Number of workers that one rule chooses from a speedup curve, with its confidence interval."""

    rule: str
    workers: int
    interval: tuple[int, int] | None  # 95 %; None where nothing was repeated


def find_last_efficient_index(workers_vs_base: Floats, speedups: Floats) -> int | None:
    """Return the index of the last number of workers before efficiency first falls below MIN_EFFICIENCY.

    None where the first number of workers is already below.
    """
    below = np.flatnonzero(speedups / workers_vs_base < MIN_EFFICIENCY)
    last = (int(below[0]) if below.size else workers_vs_base.size) - 1
    return last if last >= 0 else None


def find_speedup_knee_index(workers_vs_base: Floats, speedups: Floats) -> int | None:
    """Return the index of the knee of a speedup curve.

    The knee is the point farthest above the curve's chord on log axes. The chord joins the first and the last point.
    None where there are fewer than three points, or no point lies above the chord.
    """
    x, y = np.log(workers_vs_base), np.log(speedups)
    if x.size < 3:  # noqa: PLR2004 -- a bend needs three points
        return None
    above = y - (y[0] + (y[-1] - y[0]) * (x - x[0]) / (x[-1] - x[0]))
    return int(np.argmax(above)) if above.max() > np.finfo(float).eps * x.size else None


def find_index_of_min_workers_time_squared(workers_vs_base: Floats, speedups: Floats) -> int:
    """Return the index of the number of workers N that minimises T^2 N.

    T is the training time. By this rule, twice the workers are worth their cost where they shorten the time T to less
    than T/sqrt(2).
    """
    return int(np.argmin(workers_vs_base / speedups**TIME_EXPONENT))


WORKER_COUNT_RULES: dict[str, WorkerCountRule] = {
    f"efficiency >= {MIN_EFFICIENCY:g}": find_last_efficient_index,
    "knee": find_speedup_knee_index,
    f"least T^{TIME_EXPONENT} N": find_index_of_min_workers_time_squared,
}


def choose_worker_counts(
    worker_counts: Sequence[int], base_worker_count: int, speedups: Floats, drawn_speedups: Floats | None
) -> tuple[ChosenWorkerCount, ...]:
    """Return the number of workers that each rule chooses from a speedup curve, such as the knee of the curve.

    A rule that chooses nothing is left out. Empty for a single number of workers.

    Args:
        worker_counts: measured numbers of workers, in ascending order.
        base_worker_count: workers of the base of the speedups.
        speedups: speedup for each number of workers, shape (counts,).
        drawn_speedups: random draws of the speedups for the intervals, shape (draws, counts); None without repeats.
    """
    if len(worker_counts) == 1:
        return ()
    relative_workers = np.array(worker_counts) / base_worker_count
    chosen = {name: rule(relative_workers, speedups) for name, rule in WORKER_COUNT_RULES.items()}
    return tuple(
        ChosenWorkerCount(
            name,
            worker_counts[index],
            _worker_count_interval(WORKER_COUNT_RULES[name], relative_workers, drawn_speedups, worker_counts),
        )
        for name, index in chosen.items()
        if index is not None
    )


def _worker_count_interval(
    rule: WorkerCountRule, workers_vs_base: Floats, drawn_speedups: Floats | None, worker_counts: Sequence[int]
) -> tuple[int, int] | None:
    """Return the 95 % confidence interval of the number of workers that a rule chooses from a speedup curve.

    It is the central 95 % of the choices on random draws of the speedups. None without these, or where the rule
    chooses nothing on more than half of them.
    """
    if drawn_speedups is None:
        return None
    indices = [float(index) for speedup in drawn_speedups if (index := rule(workers_vs_base, speedup)) is not None]
    if 2 * len(indices) < len(drawn_speedups):
        return None
    low, high = np.percentile(indices, [2.5, 97.5], method="nearest").tolist()
    return worker_counts[round(low)], worker_counts[round(high)]
