"""Training phases of a trial: one for most strategies, two if the strategy switches to another."""

from dataclasses import dataclass
from typing import Literal

import pandas as pd

from analysis.reading.plan_view import TrialPlan
from analysis.reading.run_table import TrialLogTables
from services.strategies.cost_model import StepTimePrediction


@dataclass(frozen=True)
class TrainingPhase:
    """Steps of a trial that one strategy performed, and predictions for these steps.

    The predictions are those of the trial plan.
    """

    name: Literal["", "before", "after"]  # relative to the switch; empty if the strategy does not switch
    steps: pd.DataFrame
    predicted: StepTimePrediction
    bytes_per_step: dict[str, float]
    reply_bytes_per_step: dict[str, float]
    sync_or_async: Literal["synchronous", "asynchronous"]
    seconds: float  # virtual, from the phase's first step to its end
    exchange_period: int = 1  # steps from one exchange to the next
    exchanges_per_period: int = 1  # more where the steps from one exchange to the next differ within a period
    new_server_names: tuple[str, ...] = ()  # workers that act only as servers

    @property
    def trained_sample_count(self) -> int:
        """Number of samples of all steps of the phase."""
        return int(self.steps["samples"].sum())


def training_phases(trial_table: TrialLogTables) -> tuple[TrainingPhase, ...]:
    """Return those training phases of a trial that have at least one step, in their order."""
    plan, record = trial_table.plan, trial_table.switch_record
    seconds = trial_table.seconds or 0.0
    if plan.second_phase is None or record is None or not record.committed:
        return (_make_first_training_phase(plan, "", trial_table.steps, seconds),)
    is_after = trial_table.steps["start_s"] >= record.second_strategy_start_s
    first_end_s = record.committed_s - float(record.committed["seconds"])
    first = _make_first_training_phase(plan, "before", trial_table.steps[~is_after], first_end_s)
    second = TrainingPhase(
        name="after",
        steps=trial_table.steps[is_after],
        predicted=plan.second_phase.predicted,
        bytes_per_step=plan.second_phase.bytes_per_step,
        reply_bytes_per_step=plan.second_phase.reply_bytes_per_step,
        sync_or_async="synchronous" if plan.second_phase.is_synchronous else "asynchronous",
        seconds=seconds - record.committed_s,
        exchange_period=plan.second_phase.exchange_period,
        exchanges_per_period=plan.second_phase.exchanges_per_period,
        new_server_names=plan.second_phase.new_server_names,
    )
    return tuple(phase for phase in (first, second) if len(phase.steps))


def _make_first_training_phase(
    plan: TrialPlan, name: Literal["", "before"], step_table: pd.DataFrame, duration_s: float
) -> TrainingPhase:
    """Return the phase of the strategy that the trial starts with."""
    return TrainingPhase(
        name,
        step_table,
        plan.predicted,
        plan.bytes_per_step,
        plan.reply_bytes_per_step,
        plan.sync_or_async,
        duration_s,
        plan.exchange_period,
        plan.exchanges_per_period,
    )
