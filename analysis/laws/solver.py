"""Least squares for many problems of the same shape at once (Levenberg 1944, Marquardt 1963)."""

from collections.abc import Callable

import numpy as np

from analysis.statistics.centre import Floats

Residuals = Callable[[Floats], Floats]  # (..., problems, parameters) -> (..., problems, residuals)

ROUNDS = 30  # laws of four parameters settle within 20; what has not follows a valley without end
REACH = 15.0  # logarithms from the start: a part of e^-15 of the whole is none
STRIDE = 1e-6  # of the forward difference
STEP = 3.0  # longest move, in logarithms: farther the linear model of an exponential means nothing
SETTLED = 1e-6  # relative change of the cost
FINE = 1e-13  # the same where the end of a valley counts: what is printed must be so on every processor
FINE_ROUNDS = 1000
ENOUGH = 0.97  # share of problems that have settled: the others follow a valley towards zero


def solve(residuals: Residuals, start: Floats, *, fine: bool = False) -> Floats:
    """The parameters (here: logarithms) of least squares for each problem, shape as `start`; within REACH of it.

    Args:
        residuals: what is to become small.
        start: where to begin.
        fine: go on to the very end, for problems that are few.
    """
    at, damping = start.copy(), np.full(len(start), 1e-2)
    left = residuals(at)
    cost = (left**2).sum(axis=1)
    rounds, change = (FINE_ROUNDS, FINE) if fine else (ROUNDS, SETTLED)
    for _ in range(rounds):
        moved = np.clip(at + _step(residuals, at, left, damping), start - REACH, start + REACH)
        next_left = residuals(moved)
        next_cost = (next_left**2).sum(axis=1)
        better = next_cost < cost
        settled = np.abs(cost - next_cost) <= change * cost + 1e-18
        at[better], left[better], cost[better] = moved[better], next_left[better], next_cost[better]
        damping = np.clip(np.where(better, 0.2 * damping, 5 * damping), 1e-9, 1e9)
        if np.mean(settled) >= ENOUGH:
            break
    return at


def _step(residuals: Residuals, at: Floats, left: Floats, damping: Floats) -> Floats:
    moved = at + STRIDE * np.eye(at.shape[1])[:, None]  # (parameters, problems, parameters)
    slopes = np.moveaxis((residuals(moved) - left) / STRIDE, 0, 2)  # (problems, residuals, parameters)
    square = np.einsum("krp,krq->kpq", slopes, slopes)
    scale = np.einsum("kpp->kp", square) + 1e-12  # a parameter without effect stays where it is
    damped = square + (damping[:, None] * scale)[:, :, None] * np.eye(at.shape[1])
    fall = np.einsum("krp,kr->kp", slopes, left)
    return np.clip(-np.linalg.solve(damped, fall[:, :, None])[:, :, 0], -STEP, STEP)
