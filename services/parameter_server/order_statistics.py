"""How long does it take until k of n workers are done, when each takes a random time?"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Times: TypeAlias = npt.NDArray[np.float64]  # shape (p,)
Cdf: TypeAlias = Callable[[Times], Times]  # the probability of a time not above each

POINTS = 8001
NEGLIGIBLE = 1e-9  # probability of what lies beyond the last point
ROUNDS, SETTLES, CHAINS = 60, 10, 400  # rounds in a row, those before delays are as they stay, rows of rounds


def expected(laws: Sequence[Cdf], kth: int, scale: float) -> float:
    """E[X_(k:n)], the mean of the k-th smallest of independent times with these laws; k counts from 1.

    ∫ P(fewer than k of n are done by x) dx by the trapezoidal rule, up to where the rest is negligible: about 10⁻³ for
    laws with steps, 10⁻⁶ for smooth ones. `scale` is any number of the magnitude of the times.
    """
    x = _points(laws, kth, scale)
    chances = _fewer_than(laws, kth, x)
    return float((chances[1:] + chances[:-1]).sum() / 2 * x[1])


def expected_round(laws: Sequence[Cdf], kth: int, scale: float, pause: float) -> float:
    """Mean time of a round that ends with its first `kth` of n, when who was late begins late in the next round.

    A renewal that no order statistic knows: whoever a round has not waited for finishes first what it has begun, and
    only then takes part. A Monte Carlo: how far behind it begins is carried from round to round in many rounds at once,
    with times drawn from `laws` by inverting them, always the same. Its standard error over other draws is 0.04 % for
    4 to 12 workers of σ = 0.1 and 0.2 % at 0.5. Between rounds there is a `pause`.
    """
    if kth == len(laws):
        return expected(laws, kth, scale)
    draw = np.random.default_rng(0).random((ROUNDS, len(laws), CHAINS))
    x = _points(laws, len(laws), scale)
    done_by = {law: law(x) for law in set(laws)}  # most workers are like others
    times = np.stack([x[np.searchsorted(done_by[law], draw[:, rank])] for rank, law in enumerate(laws)], axis=1)
    behind, taken = np.zeros((len(laws), CHAINS)), []
    for own in times:
        done = behind + own
        end = np.partition(done, kth - 1, axis=0)[kth - 1]
        taken.append(end.mean())
        behind = np.where(behind > end, behind - end - pause, np.where(done > end, done - end, 0.0))
    return float(np.mean(taken[SETTLES:]))


def _points(laws: Sequence[Cdf], kth: int, scale: float) -> Times:
    """Times from 0 to where all but a negligible part is done, at equal distances."""
    end = scale
    while _fewer_than(laws, kth, np.array([end]))[0] > NEGLIGIBLE:
        end *= 2
    return np.linspace(0.0, end, POINTS)


def _fewer_than(laws: Sequence[Cdf], kth: int, x: Times) -> Times:
    """Probability that fewer than k are done: a Poisson binomial, worker by worker."""
    done = np.zeros((kth, x.size))  # [j]: exactly j of those looked at; k or more are let go
    done[0] = 1.0
    done_by = {law: law(x) for law in set(laws)}  # most workers are like others
    for law in laws:
        chance = done_by[law]
        done[1:] = done[1:] * (1 - chance) + done[:-1] * chance
        done[0] *= 1 - chance
    return np.asarray(done.sum(axis=0))
