"""Verdict on a switch between strategies: whether it saved time without making the model worse.

A trial that switched is compared with a trial of the same seed that did not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import fmean
from typing import Literal, NamedTuple, TypeAlias, cast

import numpy as np

from analysis.report.wording import format_number
from analysis.results.trial_result import TrialResult
from analysis.statistics.intervals import mean_interval
from services.scenario.target import QUALITY_METRICS, MetricName

SwitchVerdict: TypeAlias = Literal["paid", "did not pay", "quality was lost", "unknown"]
# Relative difference up to which a quality counts as the same, as in Sync-Switch (Li et al., ICDCS 2021).
QUALITY_TOLERANCE = 0.01
DEFAULT_QUALITY_METRICS: tuple[MetricName, ...] = ("accuracy", "r2")  # where the scenario has no target


class SwitchBenefitVerdict(NamedTuple):
    """Verdict on a strategy switch, with a text that states its basis.

    The basis is the model quality or the time to the target.
    """

    verdict: SwitchVerdict
    quality: str = ""


@dataclass(frozen=True)
class FinalQualityBySwitch:
    """Final values of a metric, such as accuracy, of trials with and without a strategy switch."""

    metric: MetricName
    switched: tuple[float, ...]
    unswitched: tuple[float, ...]

    @property
    def is_worse_with_switch(self) -> bool:
        """Whether a strategy switch makes the final model worse.

        The difference must exceed the tolerance, and its 95 % interval over seeds must not contain 0. A single seed has
        no interval.
        """
        if not all(isfinite(value) for value in (*self.switched, *self.unswitched)):
            return not all(isfinite(value) for value in self.switched)
        sign = 1 if QUALITY_METRICS[self.metric].bound_key == "at_least" else -1
        pairs = zip(self.switched, self.unswitched, strict=True)
        losses = [sign * (unswitched - switched) for switched, unswitched in pairs]
        interval = mean_interval(np.array(losses))
        is_beyond_noise = interval is None or interval[0] > 0
        return is_beyond_noise and fmean(losses) > QUALITY_TOLERANCE * abs(fmean(self.unswitched))

    @property
    def description(self) -> str:
        """Clause that compares final qualities, such as "accuracy ends at 0.100 instead of 0.936"."""
        mean = f", the mean of {len(self.switched)} seeds" if len(self.switched) > 1 else ""
        switched, unswitched = (format_number(fmean(values)) for values in (self.switched, self.unswitched))
        return f"{self.metric} ends at {switched} instead of {unswitched}{mean}"


def find_final_model_qualities(switch_pairs: Sequence[tuple[TrialResult, TrialResult]]) -> FinalQualityBySwitch | None:
    """Return the final model qualities of pairs of trials with and without a strategy switch.

    The metric is the target's, else the first of DEFAULT_QUALITY_METRICS that all trials have; None without one.
    """
    target = next((str(trial.target).split()[0] for trial, _ in switch_pairs if trial.target), None)
    candidates = DEFAULT_QUALITY_METRICS if target is None else (cast("MetricName", target),)
    known = (
        name
        for name in candidates
        if switch_pairs and all(name in trial.final for pair in switch_pairs for trial in pair)
    )
    metric = next(known, None)
    if metric is None:
        return None
    switched = tuple(trial.final[metric] for trial, _ in switch_pairs)
    unswitched = tuple(trial.final[metric] for _, trial in switch_pairs)
    return FinalQualityBySwitch(metric, switched, unswitched)


def judge_strategy_switch(
    switched_trial: TrialResult, unswitched_trial: TrialResult | None, final_quality_pairs: FinalQualityBySwitch | None
) -> SwitchBenefitVerdict:
    """Return whether a trial's strategy switch saved time without making the model worse.

    Where the target was reached after the switch, the shorter time to the target decides. Otherwise the seconds saved
    by the batches after the switch decide, as long as the final quality is the same. A target counts as lost by the
    switch only where the trial without a switch reaches it.

    Args:
        switched_trial: a trial that switched after its first step.
        unswitched_trial: a trial with the same seed that did not switch.
        final_quality_pairs: final qualities of all such pairs among the repeats.
    """
    missed = f"{switched_trial.target} was missed" if _has_missed_target(switched_trial) else ""
    quality_text = ": ".join(filter(None, (missed, final_quality_pairs.description if final_quality_pairs else "")))
    if unswitched_trial and _has_missed_target(switched_trial) and not _has_missed_target(unswitched_trial):
        return SwitchBenefitVerdict("quality was lost", quality_text)
    if unswitched_trial and _reached_target_after_switch(switched_trial):
        return _judge_by_time_to_target(switched_trial, unswitched_trial)
    if final_quality_pairs and final_quality_pairs.is_worse_with_switch:
        return SwitchBenefitVerdict("quality was lost", quality_text)
    saves = switched_trial.switch is not None and (switched_trial.switch.saved_s or 0.0) > 0
    if saves and final_quality_pairs is None:
        return SwitchBenefitVerdict("unknown")
    return SwitchBenefitVerdict("paid" if saves else "did not pay")


def _has_missed_target(trial: TrialResult) -> bool:
    return trial.target is not None and trial.time_to_target_s is None


def _reached_target_after_switch(switched_trial: TrialResult) -> bool:
    """Return whether a trial reached its training target only after its strategy switch."""
    before = switched_trial.switch.before if switched_trial.switch else None
    return bool(before and switched_trial.samples_to_target and switched_trial.samples_to_target > before.samples)


def _judge_by_time_to_target(switched_trial: TrialResult, unswitched_trial: TrialResult) -> SwitchBenefitVerdict:
    """Return the verdict on a strategy switch, judged by the time to the target.

    The verdict is "paid" if the trial with a switch reached the target before the other, else "did not pay".
    """
    time_s, unswitched_time_s = switched_trial.time_to_target_s or 0.0, unswitched_trial.time_to_target_s
    times = f"{switched_trial.target} took {format_number(time_s)} s"
    if unswitched_time_s is None:
        return SwitchBenefitVerdict("paid", f"{times} and was missed without it")
    times += f" instead of {format_number(unswitched_time_s)} s"
    return SwitchBenefitVerdict("paid" if time_s < unswitched_time_s else "did not pay", times)
