"""Non-linear least-squares solver for many problems of equal shape at once.

Sources: Levenberg 1944, Marquardt 1963.
"""

from collections.abc import Callable

import numpy as np

from analysis.statistics.centre import Floats

ResidualFunction = Callable[[Floats], Floats]  # (..., problems, parameters) -> (..., problems, residuals)

MAX_ITERATIONS = 30  # laws of four parameters converge within 20, if they converge
MAX_LOG_DISTANCE = 15.0  # of a log parameter from its initial value: a part that is e^-15 of the whole is negligible
DIFFERENCE_STEP = 1e-6  # of the forward difference
MAX_LOG_STEP = 3.0  # longest step of a log parameter; beyond it the linear model of an exponential is useless
RELATIVE_TOLERANCE = 1e-6  # relative change of the cost at which a problem counts as converged
FINE_RELATIVE_TOLERANCE = 1e-13  # at high precision, so that printed numbers are the same on every processor
FINE_MAX_ITERATIONS = 1000  # at high precision
CONVERGED_SHARE = 0.97  # share of converged problems at which to stop: in the others a parameter falls towards zero


def solve_least_squares(
    residual_function: ResidualFunction, initial_parameters: Floats, *, high_precision: bool = False
) -> Floats:
    """Return the parameters with the least squared residuals for each problem.

    The array has the shape (problems, parameters).

    Parameters are logarithms here, and stay within MAX_LOG_DISTANCE of `initial_parameters`.

    Args:
        residual_function: residuals of all problems for given parameters.
        initial_parameters: parameters to start from, shape (problems, parameters).
        high_precision: whether to iterate until the cost hardly changes any more; for few problems.
    """
    parameters, damping = initial_parameters.copy(), np.full(len(initial_parameters), 1e-2)
    residuals = residual_function(parameters)
    cost = (residuals**2).sum(axis=1)
    max_iterations = FINE_MAX_ITERATIONS if high_precision else MAX_ITERATIONS
    tolerance = FINE_RELATIVE_TOLERANCE if high_precision else RELATIVE_TOLERANCE
    lower, upper = initial_parameters - MAX_LOG_DISTANCE, initial_parameters + MAX_LOG_DISTANCE
    for _ in range(max_iterations):
        moved = np.clip(parameters + _damped_step(residual_function, parameters, residuals, damping), lower, upper)
        moved_residuals = residual_function(moved)
        moved_cost = (moved_residuals**2).sum(axis=1)
        is_better = moved_cost < cost
        is_converged = np.abs(cost - moved_cost) <= tolerance * cost + 1e-18
        parameters[is_better], residuals[is_better] = moved[is_better], moved_residuals[is_better]
        cost[is_better] = moved_cost[is_better]
        damping = np.clip(np.where(is_better, 0.2 * damping, 5 * damping), 1e-9, 1e9)
        if np.mean(is_converged) >= CONVERGED_SHARE:
            break
    return parameters


def _damped_step(residual_function: ResidualFunction, parameters: Floats, residuals: Floats, damping: Floats) -> Floats:
    """Return the damped Gauss-Newton step of each least-squares problem.

    The array has the shape (problems, parameters).
    """
    count = parameters.shape[1]
    moved = parameters + DIFFERENCE_STEP * np.eye(count)[:, None]  # (parameters, problems, parameters)
    slopes = (residual_function(moved) - residuals) / DIFFERENCE_STEP
    jacobian = np.moveaxis(slopes, 0, 2)  # (problems, residuals, parameters)
    hessian = np.einsum("krp,krq->kpq", jacobian, jacobian)
    scale = np.einsum("kpp->kp", hessian) + 1e-12  # a parameter without effect does not move
    damped = hessian + (damping[:, None] * scale)[:, :, None] * np.eye(count)
    gradient = np.einsum("krp,kr->kp", jacobian, residuals)
    return np.clip(-np.linalg.solve(damped, gradient[:, :, None])[:, :, 0], -MAX_LOG_STEP, MAX_LOG_STEP)
