"""Comparison of the times of two strategies over the same seeds.

A seed fixes the initial parameters and the order of the data, so its effect on both strategies cancels in their ratio.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from analysis.statistics.centre import Floats, olympic_mean
from analysis.statistics.intervals import Interval, ratio_interval
from analysis.statistics.rounding import log_rounding_variance

MAX_EXACT_PAIRS = 14  # largest number of pairs for which all patterns of signs are tried: 2^14 take a moment


@dataclass(frozen=True)
class PairedComparison:
    """Ratio of the times of two strategies over the same seeds, with confidence interval and p-value."""

    ratio: float  # second / first, of olympic means; above 1 means that the first is faster
    interval: Interval | None  # 95 %, None where a run missed the target; it contains 1 where p_value > 0.05
    p_value: float  # two-sided, of no difference; `holm_adjust` adjusts several
    pairs: int
    missed_runs: tuple[int, int]  # runs of the first and of the second that did not reach the target


def compare_times_by_seed(
    first_times: Floats, second_times: Floats, times_between_evaluations: tuple[float, float] = (0.0, 0.0)
) -> PairedComparison:
    """Compare the times of two strategies that ran the same seeds: ratio, confidence interval and p-value.

    There is one time per seed, in the same order of seeds. A run that missed the target has an infinite time and is not
    left out. The p-value is that of Student's t-test of log ratios where all times are finite, since times vary by
    factors. Where a run missed the target, it is that of signed ranks (Wilcoxon 1945) with infinity as the largest
    rank, which cannot fall below 0.05 with fewer than six pairs.

    Args:
        first_times: times of the first strategy, shape (seeds,).
        second_times: times of the second strategy, shape (seeds,).
        times_between_evaluations: of both strategies; their times are rounded up to these. The mean log
            ratio is at least as uncertain as this rounding.

    Raises:
        ValueError: the numbers of runs differ, or a time is not positive.
    """
    if first_times.size != second_times.size:
        raise ValueError(f"{first_times.size} and {second_times.size} runs cannot be paired; both need the same seeds")
    if not (np.minimum(first_times, second_times) > 0).all():
        raise ValueError(f"times must be positive; the smallest is {np.minimum(first_times, second_times).min():g}")
    with np.errstate(invalid="ignore"):
        ratio = float(olympic_mean(second_times) / olympic_mean(first_times))
    log_ratios = _compute_log_time_ratios(first_times, second_times)
    if np.isfinite([first_times, second_times]).all():
        first_step, second_step = times_between_evaluations
        min_mean_variance = log_rounding_variance(first_times, first_step)
        min_mean_variance += log_rounding_variance(second_times, second_step)
        p_value = paired_t_test_p_value(log_ratios, min_mean_variance)
    else:
        p_value = _signed_rank_p_value(log_ratios)
    missed_runs = (int(np.isinf(first_times).sum()), int(np.isinf(second_times).sum()))
    interval = ratio_interval(second_times, first_times, paired=True, rounding_steps=times_between_evaluations[::-1])
    return PairedComparison(ratio, interval, p_value, first_times.size, missed_runs)


def _compute_log_time_ratios(first_times: Floats, second_times: Floats) -> Floats:
    """Return ln(second time / first time) for each seed.

    The value is 0 where both runs of a seed missed the target.
    """
    both_missed = np.isinf(first_times) & np.isinf(second_times)
    with np.errstate(invalid="ignore"):
        return np.where(both_missed, 0.0, np.log(second_times) - np.log(first_times))


def paired_t_test_p_value(differences: Floats, min_variance_of_mean: float = 0.0) -> float:
    """Return the two-sided p-value of Student's t-test that the mean of paired differences is zero.

    It is 1 for a single pair. The variance of the mean is at least `min_variance_of_mean`; 0: equal differences count
    as exact.
    """
    if differences.size <= 1:
        return 1.0
    standard_error = np.sqrt(max(float(differences.var(ddof=1)) / differences.size, min_variance_of_mean))
    if standard_error == 0:
        return float(differences[0] == 0)
    return float(2 * stdtr(differences.size - 1, -abs(differences.mean()) / standard_error))


def _signed_rank_p_value(log_ratios: Floats) -> float:
    """Return the p-value of the signed-rank test that log ratios are symmetric around zero.

    It is the share of sign patterns whose signed rank sum is at least as far from zero as the observed one.

    Up to MAX_EXACT_PAIRS pairs all patterns are tried, beyond that 2^MAX_EXACT_PAIRS random ones.
    """
    from scipy.stats import rankdata  # noqa: PLC0415 -- its import takes half a second; needed only where a run missed

    ranks = rankdata(np.abs(log_ratios)) * (log_ratios != 0)
    if log_ratios.size <= MAX_EXACT_PAIRS:
        signs = 1 - 2 * ((np.arange(2**log_ratios.size)[:, None] >> np.arange(log_ratios.size)) & 1)
    else:
        signs = np.random.default_rng(0).choice([-1, 1], size=(2**MAX_EXACT_PAIRS, log_ratios.size))
    rank_sums = np.abs(signs @ ranks)
    return float(np.mean(rank_sums >= abs(np.sign(log_ratios) @ ranks)))
