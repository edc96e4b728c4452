"""Range of samples to the target that a reference admits, by the rule of MLCommons for reference convergence points.

A mean below the range means that the runs converged faster than the reference by more than chance, most often because
the problem was changed. Source: MLCommons, `rcp_checker` of mlperf_logging: two-sample t-test with equal variances,
one-sided at 5 %. We differ: means are not olympic, all points are used (MLCommons drops points above the interpolation
of their neighbours), rounding to evaluations is a minimum of the variance, and a mean above the range is reported, too.
`analysis.statistics.convergence_check` compares repeats of two strategies; here one side may be a single run.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from analysis.statistics.centre import Floats
from analysis.statistics.convergence_check import SIGNIFICANCE_LEVEL, ConvergenceCheck


@dataclass(frozen=True)
class ReferenceStatistics:
    """Mean, standard deviation and number of the reference runs of one batch."""

    mean: float
    standard_deviation: float
    run_count: int

    @classmethod
    def of_runs(cls, samples_to_target: Floats, evaluation_interval: float) -> "ReferenceStatistics":
        """Return the statistics of several runs, whose samples are rounded up to multiples of `evaluation_interval`.

        The standard deviation is at least that of the rounding, interval/√12: runs that reach the target at the same
        evaluation still differ.

        Raises:
            ValueError: there are fewer than two runs, or a run missed the target.
        """
        if samples_to_target.size <= 1 or not np.isfinite(samples_to_target).all():
            raise ValueError("a reference needs two runs or more, all of which reached the target")
        deviation = max(float(samples_to_target.std(ddof=1)), evaluation_interval / np.sqrt(12))
        return cls(float(samples_to_target.mean()), deviation, samples_to_target.size)

    def interpolate(self, other: "ReferenceStatistics", weight: float) -> "ReferenceStatistics":
        """Return the statistics between this batch (weight 0) and another one (weight 1), linear as by MLCommons."""
        return ReferenceStatistics(
            (1 - weight) * self.mean + weight * other.mean,
            (1 - weight) * self.standard_deviation + weight * other.standard_deviation,
            min(self.run_count, other.run_count),
        )


@dataclass(frozen=True)
class ReferenceRange:
    """Range of the mean samples to the target of several runs that a reference admits."""

    low: float
    high: float
    fewer: ConvergenceCheck  # whether the runs need fewer samples than the reference
    p_more: float  # one-sided, of needing no more samples than the reference


def compare_with_reference(samples_to_target: Floats, reference: ReferenceStatistics) -> ReferenceRange:
    """Compare the samples to the target of one or more runs with a reference.

    The variance is pooled over both sides, so that a single run can be compared, too. All runs reached the target.
    """
    run_count = samples_to_target.size
    degrees_of_freedom = reference.run_count + run_count - 2
    squares = (reference.run_count - 1) * reference.standard_deviation**2
    squares += float(((samples_to_target - samples_to_target.mean()) ** 2).sum())
    standard_error = float(np.sqrt(squares / degrees_of_freedom * (1 / reference.run_count + 1 / run_count)))
    half_width = float(stdtrit(degrees_of_freedom, 1 - SIGNIFICANCE_LEVEL)) * standard_error
    mean = float(samples_to_target.mean())
    p_fewer = float(stdtr(degrees_of_freedom, (mean - reference.mean) / standard_error))
    check = ConvergenceCheck(mean / reference.mean, p_fewer)
    return ReferenceRange(reference.mean - half_width, reference.mean + half_width, check, 1 - p_fewer)
