"""Did a switch pay? Time counts only where the model is as good as that of a trial that went on as before."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from statistics import fmean, stdev
from typing import Literal, NamedTuple, TypeAlias, cast

from analysis.report.wording import number
from analysis.results.result import TrialResult
from services.scenario.target import METRIC_PROPERTIES, MetricName

Verdict: TypeAlias = Literal["paid", "did not pay", "quality was lost", "unknown"]
SAME = 0.01  # share by which a quality may be worse and still be the same, as in Sync-Switch (Li et al., ICDCS 2021)
ERRORS = 2.0  # standard errors over seeds within which a difference is noise
OWN: tuple[MetricName, ...] = ("accuracy", "r2")  # what models are judged by where no target says


class Worth(NamedTuple):
    """Whether a switch paid, and what its model's quality has to do with that; no words where it has nothing."""

    verdict: Verdict
    quality: str = ""


@dataclass(frozen=True)
class Ends:
    """A quality at the end, by seed: of trials that switched and of those that went on as before."""

    metric: MetricName
    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    @property
    def worse(self) -> bool:
        """Whether ours is worse by more than counts as the same, and by more than seeds make it differ."""
        if not all(isfinite(value) for value in (*self.ours, *self.theirs)):
            return not all(isfinite(value) for value in self.ours)
        sign = 1 if METRIC_PROPERTIES[self.metric].bound_key == "at_least" else -1
        gaps = [sign * (theirs - ours) for ours, theirs in zip(self.ours, self.theirs, strict=True)]
        noise = ERRORS * stdev(gaps) / sqrt(len(gaps)) if len(gaps) > 1 else 0.0
        return fmean(gaps) > max(SAME * abs(fmean(self.theirs)), noise)

    @property
    def told(self) -> str:
        """As in "accuracy ends at 0.100 instead of 0.936"."""
        mean = f", the mean of {len(self.ours)} seeds" if len(self.ours) > 1 else ""
        return f"{self.metric} ends at {number(fmean(self.ours))} instead of {number(fmean(self.theirs))}{mean}"


def ends(pairs: Sequence[tuple[TrialResult, TrialResult]]) -> Ends | None:
    """The quality of repeats that switched beside those that did not; None where a trial knows nothing of it."""
    target = next((str(ours.target).split()[0] for ours, _ in pairs if ours.target), None)
    metrics = OWN if target is None else (cast("MetricName", target),)
    known = (name for name in metrics if pairs and all(name in each.final for pair in pairs for each in pair))
    metric = next(known, None)
    if metric is None:
        return None
    return Ends(metric, tuple(ours.final[metric] for ours, _ in pairs), tuple(them.final[metric] for _, them in pairs))


def worth(trial: TrialResult, stayed: TrialResult | None, found: Ends | None) -> Worth:
    """Whether the switch of a trial paid.

    By the time to the target where the switch came before that, else by what batches after it save, as long as the
    quality at the end is the same. A target is lost by a switch only where going on as before reaches it.

    Args:
        trial: one that switched after its first step.
        stayed: one with the same seed that went on as before.
        found: the qualities of all such pairs among the repeats.
    """
    told = ": ".join(filter(None, (f"{trial.target} was missed" * _missed(trial), found.told if found else "")))
    if stayed and _missed(trial) and not _missed(stayed):
        return Worth("quality was lost", told)
    if stayed and _reached_after(trial):
        return _raced(trial, stayed)
    if found and found.worse:
        return Worth("quality was lost", told)
    saves = trial.switch is not None and (trial.switch.saved_s or 0.0) > 0
    if saves and found is None:
        return Worth("unknown")
    return Worth("paid" if saves else "did not pay")


def _missed(trial: TrialResult) -> bool:
    return trial.target is not None and trial.time_to_target_s is None


def _reached_after(trial: TrialResult) -> bool:
    """Whether the target was reached, and not before the switch."""
    before = trial.switch.before if trial.switch else None
    return bool(before and trial.samples_to_target and trial.samples_to_target > before.samples)


def _raced(trial: TrialResult, stayed: TrialResult) -> Worth:
    """Who reached the target first."""
    ours, theirs = trial.time_to_target_s or 0.0, stayed.time_to_target_s
    if theirs is None:
        return Worth("paid", f"{trial.target} took {number(ours)} s and was missed without it")
    times = f"{trial.target} took {number(ours)} s instead of {number(theirs)} s"
    return Worth("paid" if ours < theirs else "did not pay", times)
