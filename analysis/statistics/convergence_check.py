"""Check for strategies that reach the target with implausibly few samples.

MLCommons compares results with reference convergence points, since training on fewer samples than the reference most
often means that the problem was changed. Such a strategy gets the advice "check for a bug".
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from analysis.statistics.centre import Floats
from analysis.statistics.rounding import rounding_variance

SIGNIFICANCE_LEVEL = 0.05  # as in the check of MLCommons


@dataclass(frozen=True)
class ConvergenceCheck:
    """Comparison of the samples that a strategy and a reference need to reach the training target."""

    ratio: float  # mean / mean of the reference; below 1 means fewer samples
    p_value: float  # one-sided, of needing no fewer samples; `holm_adjust` adjusts several

    @property
    def converges_too_fast(self) -> bool:
        """Whether the strategy needs significantly fewer samples than the reference.

        Such a strategy probably has a bug.
        """
        return self.p_value < SIGNIFICANCE_LEVEL


def compare_convergence(
    samples_to_target_by_run: Floats,
    reference_samples_by_run: Floats,
    evaluation_intervals: tuple[float, float] = (0.0, 0.0),
) -> ConvergenceCheck:
    """Test whether a strategy needs fewer samples to the target than a reference.

    The test is Welch's t-test (1947). Runs that missed the target are infinite; a strategy with such a run is never
    suspicious.

    Args:
        samples_to_target_by_run: samples to target of each run.
        reference_samples_by_run: samples to target of each run of the reference.
        evaluation_intervals: samples between evaluations, for both sides: sample counts are rounded up to these.
            Equal runs are as uncertain as their rounding; with 0 they count as exact.

    Raises:
        ValueError: the reference did not converge, or either side has a single run, whose spread is unknown.
    """
    if not np.isfinite(reference_samples_by_run).all():
        raise ValueError("a run of the reference missed its target; use a reference whose runs all reached it")
    if min(samples_to_target_by_run.size, reference_samples_by_run.size) == 1:
        raise ValueError("a single run has no spread to test by; give two runs or more on both sides")
    if not np.isfinite(samples_to_target_by_run).all():
        return ConvergenceCheck(np.inf, 1.0)
    mean_difference = float(samples_to_target_by_run.mean() - reference_samples_by_run.mean())
    p_value = _compute_welch_p_value(
        mean_difference, (samples_to_target_by_run, reference_samples_by_run), evaluation_intervals
    )
    return ConvergenceCheck(float(samples_to_target_by_run.mean() / reference_samples_by_run.mean()), p_value)


def _compute_welch_p_value(
    mean_difference: float, samples_to_target: tuple[Floats, Floats], evaluation_intervals: tuple[float, float]
) -> float:
    """Return the one-sided p-value of Welch's t-test on the samples to target of two groups.

    Evaluations round these samples up; the variance of a mean is at least the variance from this rounding.
    """
    rounding = [
        rounding_variance(sample, step) for sample, step in zip(samples_to_target, evaluation_intervals, strict=True)
    ]
    mean_variances = np.maximum([sample.var(ddof=1) / sample.size for sample in samples_to_target], rounding)
    if mean_variances.sum() == 0:
        return float(mean_difference >= 0)
    degrees_of_freedom = (
        mean_variances.sum() ** 2 / (mean_variances**2 / [sample.size - 1 for sample in samples_to_target]).sum()
    )
    return float(stdtr(degrees_of_freedom, mean_difference / np.sqrt(mean_variances.sum())))
