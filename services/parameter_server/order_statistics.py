"""Expected time until k of n workers have finished computing.

The compute time of each worker is random.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

TimesS: TypeAlias = npt.NDArray[np.float64]  # seconds, shape (p,)
Cdf: TypeAlias = Callable[[TimesS], TimesS]  # cumulative distribution function: P(time ≤ x) for each x

GRID_POINTS = 8001
NEGLIGIBLE_PROBABILITY = 1e-9  # that the time lies beyond the last point of the grid
ROUNDS_PER_CHAIN = 60
WARM_UP_ROUNDS = 10  # at the start of a chain, until the delays are stationary; not counted
CHAIN_COUNT = 400  # independent sequences of rounds


def expected_kth_finish_s(time_cdfs: Sequence[Cdf], kth: int, time_scale_s: float) -> float:
    """Return the expected seconds until k of n workers have finished.

    k is `kth`. The result is E[X_(k:n)] of independent times. ∫ P(fewer than k of n times are at most x) dx by the
    trapezoidal rule, up to the point beyond which the rest is negligible. The error is about 10⁻³ for distributions
    with steps and 10⁻⁶ for smooth ones.

    Args:
        time_cdfs: the distribution of each time.
        kth: k, counted from 1.
        time_scale_s: any time of the same magnitude.
    """
    times_s = _make_time_grid_s(time_cdfs, kth, time_scale_s)
    probabilities = _probability_of_fewer_finished(time_cdfs, kth, times_s)
    return float((probabilities[1:] + probabilities[:-1]).sum() / 2 * times_s[1])


def simulate_mean_round_s(
    time_cdfs: Sequence[Cdf], awaited_count: int, time_scale_s: float, pause_between_rounds_s: float
) -> float:
    """Return the mean duration of a training round in seconds, by simulation.

    A round ends when `awaited_count` of n workers have computed. Workers that are still busy with the previous round
    start late.

    A worker for which a round has not waited first finishes its computation, and only then takes part in a round. No
    order statistic covers this renewal process, so it is simulated (Monte Carlo): each worker's delay is carried from
    round to round, in many chains of rounds at once. Times are drawn by inverting the distribution functions, always
    from the same random numbers. The standard error over other random numbers is 0.04 % for 4 to 12 workers of σ = 0.1,
    and 0.2 % at σ = 0.5.

    Args:
        time_cdfs: distribution of the time of each worker.
        awaited_count: number of workers that a round waits for.
        time_scale_s: any time of the same magnitude.
        pause_between_rounds_s: seconds between two rounds.
    """
    if awaited_count == len(time_cdfs):
        return expected_kth_finish_s(time_cdfs, awaited_count, time_scale_s)
    draws = np.random.default_rng(0).random((ROUNDS_PER_CHAIN, len(time_cdfs), CHAIN_COUNT))
    grid_s = _make_time_grid_s(time_cdfs, len(time_cdfs), time_scale_s)
    probabilities = {
        cdf: cdf(grid_s) for cdf in set(time_cdfs)
    }  # computed once for all workers with equal distributions
    times_s = np.stack(
        [grid_s[np.searchsorted(probabilities[cdf], draws[:, k])] for k, cdf in enumerate(time_cdfs)], axis=1
    )
    delays_s, round_means_s = np.zeros((len(time_cdfs), CHAIN_COUNT)), []
    for round_times_s in times_s:
        finished_s = delays_s + round_times_s
        end_s = np.partition(finished_s, awaited_count - 1, axis=0)[awaited_count - 1]
        round_means_s.append(end_s.mean())
        still_late = delays_s > end_s  # still busy with an earlier round
        late_s = np.where(finished_s > end_s, finished_s - end_s, 0.0)
        delays_s = np.where(still_late, delays_s - end_s - pause_between_rounds_s, late_s)
    return float(np.mean(round_means_s[WARM_UP_ROUNDS:]))


def _make_time_grid_s(time_cdfs: Sequence[Cdf], awaited_count: int, time_scale_s: float) -> TimesS:
    """Return equidistant times for a numerical integration, in seconds.

    They reach from 0 to a time at which almost surely `awaited_count` workers have finished.
    """
    end_s = time_scale_s
    while _probability_of_fewer_finished(time_cdfs, awaited_count, np.array([end_s]))[0] > NEGLIGIBLE_PROBABILITY:
        end_s *= 2
    return np.linspace(0.0, end_s, GRID_POINTS)


def _probability_of_fewer_finished(time_cdfs: Sequence[Cdf], awaited_count: int, times_s: TimesS) -> TimesS:
    """Return, for each time, the probability that fewer than `awaited_count` workers have finished at that time.

    A Poisson binomial distribution, computed worker by worker.
    """
    # [j]: P(exactly j of the workers so far); `awaited_count` or more are not tracked
    exactly = np.zeros((awaited_count, times_s.size))
    exactly[0] = 1.0
    probabilities = {cdf: cdf(times_s) for cdf in set(time_cdfs)}  # once for all workers with equal distributions
    for cdf in time_cdfs:
        finished = probabilities[cdf]
        exactly[1:] = exactly[1:] * (1 - finished) + exactly[:-1] * finished
        exactly[0] *= 1 - finished
    return np.asarray(exactly.sum(axis=0))
