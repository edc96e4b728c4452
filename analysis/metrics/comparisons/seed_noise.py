"""Comparison of the final quality of strategies with seed noise, the spread of quality over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

import numpy as np
from scipy.special import stdtr

from analysis.metrics.comparisons.quality_comparison import SAME_SAMPLES_RATIO
from analysis.results.comparable_groups import restrict_to_shared_seeds
from analysis.results.trial_group import TrialGroup
from analysis.statistics.centre import Floats
from analysis.statistics.convergence_check import SIGNIFICANCE_LEVEL
from analysis.statistics.holm import holm_adjust
from analysis.statistics.intervals import Interval, mean_interval


class SeedNoiseAnswer(StrEnum):
    """Answer to the question whether strategies differ in quality by more than seed noise."""

    YES = "yes"
    NO = "no"
    TOO_CLOSE = "too close to call"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class QualityDifference:
    """Difference of the final quality of two groups of trials over the seeds that both ran."""

    first: TrialGroup
    second: TrialGroup
    by_seed: Floats  # first - second, shape (seeds,)

    @property
    def mean(self) -> float:
        """Mean difference over the shared seeds."""
        return float(self.by_seed.mean())

    @property
    def interval(self) -> Interval:
        """95 % t-interval of the mean difference."""
        return mean_interval(self.by_seed) or (self.mean, self.mean)

    def is_within(self, noise: float) -> bool:
        """Return whether the interval lies inside -noise to noise."""
        low, high = self.interval
        return -noise < low and high < noise

    def p_value_of_exceeding(self, noise: float) -> float:
        """Return the one-sided p-value of the t-test that the size of the mean difference is at most `noise`."""
        excess = abs(self.mean) - noise
        standard_error = float(self.by_seed.std(ddof=1)) / np.sqrt(self.by_seed.size)
        if standard_error == 0:
            return float(excess <= 0)
        return float(stdtr(self.by_seed.size - 1, -excess / standard_error))


@dataclass(frozen=True)
class SeedNoiseComparison:
    """Answer to whether strategies differ in a quality metric by more than seed noise, with the largest difference.

    Seed noise is the standard deviation of the metric over the seeds of one group, pooled over the groups: by so much
    a single run differs from another one with another seed. `reason` says why the answer is "not measured".
    """

    answer: SeedNoiseAnswer
    metric: str
    noise: float = 0.0
    largest: QualityDifference | None = None
    reason: str = ""


def compare_with_seed_noise(trial_groups: Sequence[TrialGroup], metric: str) -> SeedNoiseComparison:
    """Compare the differences of a final metric between groups of trials with seed noise.

    - yes: at least one pair of groups differs by more than the noise (one-sided t-test over shared seeds, Holm, 5 %).
    - no: every pair differs by less than the noise: the 95 % interval of its difference lies within it.
    - too close to call: neither.
    - not measured: two groups or two shared seeds are missing, the seeds do not vary the metric, a value is not
      finite, or the groups trained on different numbers of samples, which changes quality by itself.

    Every group should end with the metric.
    """

    def not_measured(reason: str) -> SeedNoiseComparison:
        return SeedNoiseComparison(SeedNoiseAnswer.NOT_MEASURED, metric, reason=reason)

    if len(trial_groups) <= 1:
        return not_measured("one group of trials has nothing to be compared with")
    trials = [trial for group in trial_groups for trial in group.trials]
    if not np.isfinite([trial.final[metric] for trial in trials]).all():
        return not_measured(f"a final {metric} is not finite")
    samples = [trial.samples for trial in trials]
    if max(samples) > SAME_SAMPLES_RATIO * min(samples):
        return not_measured("the trials trained on different numbers of samples")
    differences = [_compute_difference(*pair, metric) for pair in combinations(trial_groups, 2)]
    if any(difference.by_seed.size <= 1 for difference in differences):
        return not_measured("two strategies share fewer than two seeds")
    values_by_group = [_final_values(group, metric) for group in trial_groups]
    if not any(np.ptp(values) for values in values_by_group):
        return not_measured(f"seeds do not change the final {metric}")
    noise = _pooled_standard_deviation(values_by_group)
    largest = max(differences, key=lambda difference: abs(difference.mean))
    return SeedNoiseComparison(_answer(differences, noise), metric, noise, largest)


def _answer(differences: Sequence[QualityDifference], noise: float) -> SeedNoiseAnswer:
    p_values = holm_adjust(np.array([difference.p_value_of_exceeding(noise) for difference in differences]))
    if p_values.min() < SIGNIFICANCE_LEVEL:
        return SeedNoiseAnswer.YES
    is_no = all(difference.is_within(noise) for difference in differences)
    return SeedNoiseAnswer.NO if is_no else SeedNoiseAnswer.TOO_CLOSE


def _compute_difference(first: TrialGroup, second: TrialGroup, metric: str) -> QualityDifference:
    first_shared, second_shared = restrict_to_shared_seeds(first, second)
    by_seed = _final_values(first_shared, metric) - _final_values(second_shared, metric)
    return QualityDifference(first, second, by_seed)


def _final_values(group: TrialGroup, metric: str) -> Floats:
    return np.array([trial.final[metric] for trial in group.trials_by_seed])


def _pooled_standard_deviation(values_by_group: Sequence[Floats]) -> float:
    """Return the standard deviation within groups of two values or more."""
    deviations = np.concatenate([values - values.mean() for values in values_by_group])
    degrees_of_freedom = sum(values.size - 1 for values in values_by_group)
    return float(np.sqrt((deviations**2).sum() / degrees_of_freedom))
