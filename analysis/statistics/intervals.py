"""95 % confidence intervals of the times of a few runs, and of ratios of two times.

Intervals of times are Student's t-intervals of mean log times, transformed back: training times vary by factors. They
are intervals of the geometric mean. The tests simulate their coverage for 2 to 10 runs with normal and log-normal
times. Bootstrap intervals of two runs cover about half of that.

Where a time was measured at an evaluation, its rounding error counts too (`analysis.statistics.rounding`). An interval
needs two finite times or more on each side: a single run has no spread, and a run that missed its target has no time.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from analysis.statistics.centre import Floats
from analysis.statistics.rounding import log_rounding_variance

LEVEL_PERCENT = 95
MAX_LOG_NOISE = 100.0  # of a drawn mean: two runs hardly bound it, and exp(1000) is no number
DRAWS = 2000  # the 2.5 % and 97.5 % points then vary by about 2 % of the interval's width

Interval = tuple[float, float]


def confidence_interval(times: Floats, rounding_step: float = 0.0) -> Interval | None:
    """Return the 95 % confidence interval of the mean time of several runs.

    Return None if a time is infinite, or for a single run. Times were rounded up to multiples of `rounding_step`.
    """
    if not _have_spread(times):
        return None
    log_times = np.log(times)
    variance = max(_variance_of_mean(log_times), log_rounding_variance(times, rounding_step))
    return _t_interval(float(log_times.mean()), variance, times.size - 1)


def mean_interval(values: Floats) -> Interval | None:
    """Return the 95 % t-interval of the mean of values that may be zero, such as accuracies.

    Return None for a single value.
    """
    if not _have_spread(values):
        return None
    half_width = _t_quantile(values.size - 1) * np.sqrt(_variance_of_mean(values))
    return float(values.mean() - half_width), float(values.mean() + half_width)


def ratio_interval(
    numerators: Floats,
    denominators: Floats,
    *,
    paired: bool = False,
    rounding_steps: tuple[float, float] = (0.0, 0.0),
) -> Interval | None:
    """Return the 95 % confidence interval of a ratio of two mean times, numerator / denominator.

    Return None if a time is infinite, or if a side is a single run. Both arrays have shape (runs,).

    Args:
        numerators: times of the numerator.
        denominators: times of the denominator.
        paired: whether both arrays have one time per seed in the same order. The effect of a seed on both times
            then cancels in the ratio. Otherwise the degrees of freedom are those of Welch (1947).
        rounding_steps: times were rounded up to multiples of these, for both sides.
    """
    sides = (numerators, denominators)
    if not all(map(_have_spread, sides)):
        return None
    roundings = np.array([log_rounding_variance(*side) for side in zip(sides, rounding_steps, strict=True)])
    if paired:
        log_ratios = np.log(numerators) - np.log(denominators)
        variance = max(_variance_of_mean(log_ratios), float(roundings.sum()))
        return _t_interval(float(log_ratios.mean()), variance, log_ratios.size - 1)
    log_ratio = float(np.log(numerators).mean() - np.log(denominators).mean())
    variances = np.maximum([_variance_of_mean(np.log(side)) for side in sides], roundings)
    if not variances.any():
        return _t_interval(log_ratio, 0.0, 1)
    degrees_of_freedom = variances.sum() ** 2 / (variances**2 / [side.size - 1 for side in sides]).sum()
    return _t_interval(log_ratio, float(variances.sum()), float(degrees_of_freedom))


def draw_mean_times(
    times: Sequence[Floats], *, paired: bool, rounding_steps: Sequence[float], seed: int = 0
) -> Floats | None:
    """Draw means of several arrays of times from their t-distribution, shape (DRAWS, arrays).

    The draws show how uncertain a function of several means is, such as the knee of a speedup curve. The central 95 %
    of the draws of one mean is its `confidence_interval`. If `paired`, the arrays have one time per seed in the same
    order, and the means have the covariance of the times. Return None if an array has a single or an infinite time.
    """
    if not all(map(_have_spread, times)):
        return None
    generator = np.random.default_rng(seed)
    noises = [generator.standard_normal((DRAWS, each.size)) for each in times[: 1 if paired else None]]
    scales = [np.sqrt(1 / (noise.shape[1] * generator.chisquare(noise.shape[1] - 1, DRAWS))) for noise in noises]
    columns = []
    for index, (each, step) in enumerate(zip(times, rounding_steps, strict=True)):
        noise, scale = noises[0 if paired else index], scales[0 if paired else index]
        rounding_error = np.sqrt(log_rounding_variance(each, step)) * generator.standard_normal(DRAWS)
        log_times = np.log(each)
        log_noise = scale * (noise @ (log_times - log_times.mean())) + rounding_error
        columns.append(np.exp(log_times.mean() + np.clip(log_noise, -MAX_LOG_NOISE, MAX_LOG_NOISE)))
    return np.stack(columns, axis=1)


def percentile_interval(draws: Floats) -> Interval:
    """Return the interval that contains the central 95 % of random draws (Efron and Tibshirani 1993, chapter 13)."""
    low, high = np.percentile(draws, [(100 - LEVEL_PERCENT) / 2, (100 + LEVEL_PERCENT) / 2])
    return float(low), float(high)


def _have_spread(times: Floats) -> bool:
    return times.size > 1 and bool(np.isfinite(times).all())


def _variance_of_mean(values: Floats) -> float:
    return float(values.var(ddof=1)) / values.size


def _t_interval(log_mean: float, variance_of_mean: float, degrees_of_freedom: float) -> Interval:
    half_width = _t_quantile(degrees_of_freedom) * np.sqrt(variance_of_mean)
    return float(np.exp(log_mean - half_width)), float(np.exp(log_mean + half_width))


def _t_quantile(degrees_of_freedom: float) -> float:
    return float(stdtrit(degrees_of_freedom, 0.5 + LEVEL_PERCENT / 200))
