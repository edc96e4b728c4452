"""How long does it take until k of n workers are done, when each takes a random time?"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Times: TypeAlias = npt.NDArray[np.float64]  # shape (p,)
Cdf: TypeAlias = Callable[[Times], Times]  # the probability of a time not above each

POINTS = 8001
NEGLIGIBLE = 1e-9  # probability of what lies beyond the last point


def expected(laws: Sequence[Cdf], kth: int, scale: float) -> float:
    """E[X_(k:n)], the mean of the k-th smallest of independent times with these laws; k counts from 1.

    ∫ P(fewer than k of n are done by x) dx by the trapezoidal rule, up to where the rest is negligible: about 10⁻³ for
    laws with steps, 10⁻⁶ for smooth ones. `scale` is any number of the magnitude of the times.
    """
    end = scale
    while _fewer_than(laws, kth, np.array([end]))[0] > NEGLIGIBLE:
        end *= 2
    x = np.linspace(0.0, end, POINTS)
    chances = _fewer_than(laws, kth, x)
    return float((chances[1:] + chances[:-1]).sum() / 2 * x[1])


def _fewer_than(laws: Sequence[Cdf], kth: int, x: Times) -> Times:
    """Probability that fewer than k are done: a Poisson binomial, worker by worker."""
    done = np.zeros((kth, x.size))  # [j]: exactly j of those looked at; k or more are let go
    done[0] = 1.0
    for law in laws:
        chance = law(x)
        done[1:] = done[1:] * (1 - chance) + done[:-1] * chance
        done[0] *= 1 - chance
    return np.asarray(done.sum(axis=0))
