"""Difference in final quality between groups of trials that trained on the same number of samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from analysis.metrics.strategy_changes.strategy_switch_verdict import QUALITY_TOLERANCE
from analysis.report.wording import format_number
from analysis.results.comparable_groups import choose_time_metric
from analysis.results.trial_group import TrialGroup
from analysis.statistics.convergence_check import SIGNIFICANCE_LEVEL
from analysis.statistics.paired_comparison import paired_t_test_p_value
from services.scenario.target import QUALITY_METRICS, MetricName

SIMILAR_QUALITY_TOLERANCE = 0.05  # relative difference up to which qualities count as similar
SAME_SAMPLES_RATIO = 1.05  # ratio up to which numbers of samples count as the same: batches round them
LOSS_METRIC = "loss"  # measured in every run; compared only where a run measures nothing else


@dataclass(frozen=True)
class QualityGap:
    """Clear difference between the best and the worst final quality at the same samples."""

    metric: MetricName
    best: TrialGroup
    worst: TrialGroup

    @property
    def description(self) -> str:
        """Clause, such as "after equally many samples, the final accuracy is 0.376 with ring and 0.847 with ps"."""
        worst, best = (format_mean_quality(group, self.metric) for group in (self.worst, self.best))
        values = f"{worst} with {self.worst.description} and {best} with {self.best.description}"
        return f"after equally many samples, the final {self.metric} is {values}"


def find_quality_gap(trial_groups: Sequence[TrialGroup]) -> QualityGap | None:
    """Return the difference between the best and the worst final quality, if it is clear.

    None if a group reached a target (training then stops at different samples), if the groups trained on different
    numbers of samples, or if the difference is within the tolerance or not significant.
    """
    groups = [group for group in trial_groups if not group.is_baseline]
    if len(groups) <= 1 or choose_time_metric(groups) == "time_to_target":
        return None
    samples = [trial.samples for group in groups for trial in group.trials]
    metric = choose_quality_metric(groups)
    if metric is None or max(samples) > SAME_SAMPLES_RATIO * min(samples):
        return None
    sign = 1 if QUALITY_METRICS[metric].bound_key == "at_least" else -1
    worst, *_, best = sorted(groups, key=lambda group: sign * mean_quality(group, metric))
    equals = [group for group in groups if format_mean_quality(group, metric) == format_mean_quality(best, metric)]
    best = next((group for group in equals if group.workers == worst.workers), best)
    gap = QualityGap(metric, best, worst)
    pair_count = len(groups) * (len(groups) - 1) // 2  # the most different pair was chosen of so many (Bonferroni)
    return gap if _is_clear(gap, pair_count) else None


def choose_quality_metric(groups: Sequence[TrialGroup]) -> MetricName | None:
    """Return the first metric other than the loss that all trials end with, else the loss.

    None if the trials share no metric, or if a value is not finite.
    """
    finals = [trial.final for group in groups for trial in group.trials]
    shared = [
        name
        for name in (finals[0] if finals else ())
        if name in QUALITY_METRICS and all(name in final for final in finals)
    ]
    metric = next((name for name in shared if name != LOSS_METRIC), next(iter(shared), None))
    if metric is None or not np.isfinite([final[metric] for final in finals]).all():
        return None
    return cast("MetricName", metric)


def mean_quality(group: TrialGroup, metric: str) -> float:
    """Return the mean final quality of the trials of a group."""
    return float(np.mean([trial.final[metric] for trial in group.trials]))


def format_mean_quality(group: TrialGroup, metric: str) -> str:
    """Return the mean final quality of the trials of a group as text, with three significant digits."""
    return format_number(mean_quality(group, metric))


def _is_clear(gap: QualityGap, pair_count: int) -> bool:
    best, worst = (mean_quality(group, gap.metric) for group in (gap.best, gap.worst))
    if 1 in (len(gap.best.trials), len(gap.worst.trials)):
        return abs(best - worst) > SIMILAR_QUALITY_TOLERANCE * abs(best)
    p_value = quality_p_value(gap.best, gap.worst, gap.metric)
    return abs(best - worst) > QUALITY_TOLERANCE * abs(best) and pair_count * p_value < SIGNIFICANCE_LEVEL


def quality_p_value(first_group: TrialGroup, second_group: TrialGroup, metric: str) -> float:
    """Return the p-value of a paired t-test of the hypothesis that two groups of trials have the same final quality.

    Pairs are the seeds that finished in both groups. Differences are tested, not ratios: an accuracy may be zero.
    """
    first_by_seed, second_by_seed = (
        {trial.seed: trial.final[metric] for trial in group.trials} for group in (first_group, second_group)
    )
    shared_seeds = sorted(first_by_seed.keys() & second_by_seed.keys())
    return paired_t_test_p_value(np.array([first_by_seed[seed] - second_by_seed[seed] for seed in shared_seeds]))
