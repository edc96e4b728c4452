"""Bootstrap confidence intervals of the mean or median of a few runs, and of the ratio of two means.

Efron's bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap, 1993). Intervals are bias-corrected and
accelerated (BCa, chapter 14), which a skewed statistic such as a ratio needs. Where BCa is undefined, intervals are
percentiles of the resampled statistics: runs do not differ, no single run changes the statistic, or a run missed its
target (infinite).
"""

import warnings
from collections.abc import Callable, Sequence

import numpy as np

from analysis.statistics.centre import Floats, olympic_mean

BOOTSTRAP_DRAWS = 2000  # the 2.5 % and 97.5 % points then vary by about 2 % of the interval's width
LEVEL_PERCENT = 95
NEGLIGIBLE_INFLUENCE = 1e-12  # relative change of a statistic below which a run has no influence on it

CentreFunction = Callable[[Floats], Floats]  # along the last axis
Interval = tuple[float, float]
SampleArrays = tuple[Floats, ...]
StatisticFunction = Callable[..., Floats]  # of samples, along their last axis


def resample_olympic_means(sample_arrays: Sequence[Floats], *, paired: bool, seed: int = 0) -> Floats:
    """Resample several arrays of values BOOTSTRAP_DRAWS times.

    Return their olympic means, shape (draws, arrays). If `paired`, arrays have one value per seed in the same order,
    and each draw picks the same seeds for all arrays. The effect of a seed on all arrays then cancels in their ratios.
    """
    generator = np.random.default_rng(seed)
    drawn_samples = sample_arrays[:1] if paired else sample_arrays
    picks = [generator.integers(0, sample.size, size=(BOOTSTRAP_DRAWS, sample.size)) for sample in drawn_samples]
    picks = picks * len(sample_arrays) if paired else picks
    return np.stack([olympic_mean(sample[pick]) for sample, pick in zip(sample_arrays, picks, strict=True)], axis=1)


def percentile_interval(draws: Floats, level_percent: float = LEVEL_PERCENT) -> Interval:
    """Return the interval that contains the central `level_percent` percent of resampled values.

    The ends may be infinite.
    """
    tails = [(100 - level_percent) / 2, (100 + level_percent) / 2]
    if np.isfinite(draws).all():
        low, high = np.percentile(draws, tails)
        return float(low), float(high)
    return float(np.percentile(draws, tails[0], method="lower")), float(np.percentile(draws, tails[1], method="higher"))


def confidence_interval(run_values: Floats, centre_function: CentreFunction = olympic_mean) -> Interval | None:
    """Return the 95 % confidence interval of the mean or median of several runs.

    Return None for a single run.
    """
    if run_values.size == 1:
        return None
    return _bca_interval((run_values,), centre_function, paired=False)


def ratio_interval(numerators: Floats, denominators: Floats, *, paired: bool = False) -> Interval | None:
    """Return the 95 % confidence interval of a ratio of two olympic means (means without the extreme runs).

    The ratio is olympic mean (numerators) / olympic mean (denominators). Both have shape (runs,). Both sides are
    resampled, so that the interval includes the spread of both; `paired` as in
    `resample_olympic_means`. A side of a single run counts as exact. None where both sides are single runs.
    """
    if numerators.size == denominators.size == 1:
        return None
    if denominators.size == 1:
        return _bca_interval((numerators,), lambda x: olympic_mean(x) / denominators[0], paired=False)
    if numerators.size == 1:
        return _bca_interval((denominators,), lambda x: numerators[0] / olympic_mean(x), paired=False)
    return _bca_interval((numerators, denominators), lambda x, y: olympic_mean(x) / olympic_mean(y), paired=paired)


def _bca_interval(sample_arrays: SampleArrays, statistic_function: StatisticFunction, *, paired: bool) -> Interval:
    """Return the BCa bootstrap interval if it exists, else the percentile interval.

    BCa means bias-corrected and accelerated. A resampled ratio of two sides that both missed the target is unknown, and
    gets the highest rank.
    """
    from scipy.stats import bootstrap  # noqa: PLC0415 -- its import takes half a second, and only repeated runs need it

    def compute_statistic(*resampled: Floats, axis: int) -> Floats:  # noqa: ARG001 -- it is always the last one
        return statistic_function(*resampled)

    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):  # warnings of undefined intervals
        result = bootstrap(
            sample_arrays,
            compute_statistic,
            n_resamples=BOOTSTRAP_DRAWS,
            confidence_level=LEVEL_PERCENT / 100,
            method="BCa",
            paired=paired,
            vectorized=True,
            rng=np.random.default_rng(0),
        )
    low, high = result.confidence_interval
    if np.isfinite([low, high]).all() and _is_bca_interval_defined(sample_arrays, statistic_function, paired=paired):
        return float(low), float(high)
    return percentile_interval(np.nan_to_num(result.bootstrap_distribution, nan=np.inf, posinf=np.inf))


def _is_bca_interval_defined(samples: SampleArrays, statistic: StatisticFunction, *, paired: bool) -> bool:
    """Return whether a BCa bootstrap interval exists.

    Values must be finite, differ, and influence the statistic.
    """
    if not all(np.isfinite(sample).all() and np.ptp(sample) for sample in samples):
        return False
    left_out = [range(len(samples))] if paired else [[index] for index in range(len(samples))]
    variance = sum(_jackknife_variance(samples, statistic, sample_indices) for sample_indices in left_out)
    return bool(variance >= (NEGLIGIBLE_INFLUENCE * statistic(*samples)) ** 2)  # below: influences are rounding errors


def _jackknife_variance(samples: SampleArrays, statistic: StatisticFunction, sample_indices: Sequence[int]) -> float:
    """Return the jackknife variance of a statistic.

    It is computed from the changes of the statistic when single runs are left out.
    """
    runs = samples[sample_indices[0]].size
    values = [
        statistic(
            *(np.delete(sample, run) if index in sample_indices else sample for index, sample in enumerate(samples))
        )
        for run in range(runs)
    ]
    influences = (runs - 1) * (np.mean(values) - np.array(values))
    return float((influences**2).sum() / runs**2)
