"""Step time of a trial as predicted by the closed form (formula) of its strategy."""

from collections.abc import Iterable

import pandas as pd

from analysis.metrics.step_times.step_seconds import steps_of_complete_exchanges
from analysis.reading.run_table import TrialLogTables
from analysis.reading.training_phases import TrainingPhase, training_phases


def predicted_typical_step_s(trial: TrialLogTables) -> float | None:
    """Return the step time that the strategy's closed form predicts, to compare with the typical measured step time.

    Return None without a prediction. It is in seconds: a mean if the speeds of workers vary, otherwise a median. For a
    trial that switched strategies it is the mean of both predictions, weighted by the steps of each strategy.
    """
    phases = training_phases(trial)
    if len(phases) > 1:
        return predicted_mean_step_s(trial)
    predicted = phases[0].predicted if phases else trial.plan.predicted
    return predicted.mean_step_s if trial.plan.has_varying_worker_speeds else predicted.median_step_s


def predicted_mean_step_s(trial: TrialLogTables) -> float | None:
    """Return the mean step time that the strategy's closed form predicts for a trial, in seconds.

    The mean is over rounds: all steps up to an exchange. None where no round is whole, since closed forms predict whole
    rounds only, or where nothing is predicted.
    """
    first_steps = frozenset({0, *trial.evals["step"].dropna()})
    counted = (
        (phase, steps_of_complete_exchanges(phase.steps, trial.plan, phase.exchange_period))
        for phase in training_phases(trial)
    )
    return _weighted_mean_s((_predicted_mean_s(phase, steps, first_steps), len(steps)) for phase, steps in counted)


def _predicted_mean_s(phase: TrainingPhase, steps: pd.DataFrame, first_steps: frozenset[float]) -> float | None:
    """Return the predicted mean time of steps of a phase, of which the first ones after an evaluation take longer.

    Args:
        phase: training phase with its prediction.
        steps: those of its steps that the mean is over.
        first_steps: numbers of the steps before which all workers wait for an evaluation, or for the begin.
    """
    mean_s = phase.predicted.mean_step_s
    if mean_s is None or steps.empty or phase.sync_or_async == "asynchronous":
        return mean_s
    return mean_s + phase.predicted.epoch_start_delay_s * float(steps["step"].isin(first_steps).mean())


def _weighted_mean_s(seconds_and_counts: Iterable[tuple[float | None, int]]) -> float | None:
    """Return the mean of times in seconds, weighted by their counts.

    Return None if all counts are 0, or a counted time is unknown.
    """
    counted = [(seconds, count) for seconds, count in seconds_and_counts if count]
    if not counted or any(seconds is None for seconds, _ in counted):
        return None
    return sum((seconds or 0.0) * count for seconds, count in counted) / sum(count for _, count in counted)
