"""How long should a step take?"""

from collections.abc import Iterable

from analysis.metrics.step_seconds import whole_rounds
from analysis.reading.run_table import TrialTable
from analysis.reading.training_phases import training_phases


def predicted_step_s(trial: TrialTable) -> float | None:
    """The closed form's step; of two strategies that of each, weighted by the steps that were done under it."""
    told = [(phase.predicted.median_step_s, len(phase.steps)) for phase in training_phases(trial)]
    return _weighted(told) if any(count for _, count in told) else trial.plan.predicted.median_step_s


def predicted_mean_step_s(trial: TrialTable) -> float | None:
    """The closed form's mean over the steps that `phase_seconds` is of; None where those are not what forms tell."""
    every = trial.plan.exchange_period
    return _weighted(
        (phase.predicted.mean_step_s, len(whole_rounds(phase.steps, every))) for phase in training_phases(trial)
    )


def _weighted(told: Iterable[tuple[float | None, int]]) -> float | None:
    """Mean of seconds by counts; None where nothing was counted, or something that was is unknown."""
    counted = [(seconds, count) for seconds, count in told if count]
    if not counted or any(seconds is None for seconds, _ in counted):
        return None
    return sum((seconds or 0.0) * count for seconds, count in counted) / sum(count for _, count in counted)
