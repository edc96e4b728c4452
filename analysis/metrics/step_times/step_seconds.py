"""Measured duration of training steps and of their phases, in virtual seconds."""

from math import ceil
from typing import Literal

import pandas as pd

from analysis.reading.plan_view import TrialPlan
from analysis.reading.run_table import STEP_PHASES, TrialLogTables
from analysis.reading.training_phases import training_phases

StepStatistic = Literal["median", "median round", "mean"]


def step_time_statistics(trial: TrialLogTables) -> dict[str, float] | None:
    """Return mean, median and 95th percentile of the time of a training step.

    All steps of all workers are counted.
    """
    seconds = trial.steps["step_s"].astype(float)
    if seconds.empty:
        return None
    return {"mean": seconds.mean(), "p50": float(seconds.quantile(0.5)), "p95": float(seconds.quantile(0.95))}


def typical_step_s(trial: TrialLogTables) -> float | None:
    """Return the typical step time of a trial, to compare with the predicted step time.

    If speeds vary, workers wait only for neighbours, or only some steps after a switch have an exchange, the typical
    time is the mean, otherwise the median.

    It is the mean or median of the rounds' mean step times. A round is all steps up to an exchange, for most strategies
    one step. Only rounds count in which every step trained a whole batch, unless there are none. None without steps.
    """
    if trial.steps.empty:
        return None
    steps = steps_of_all_complete_exchanges(trial)
    rounds_s = steps["step_s"].astype(float)
    if trial.plan.exchange_period > 1 or steps.duplicated(["node", "step"]).any():
        rounds_s = rounds_s.groupby([steps["node"], steps["step"] // trial.plan.exchange_period], observed=True).mean()
    return float(rounds_s.mean() if step_time_statistic_name(trial.plan) == "mean" else rounds_s.median())


def step_time_statistic_name(plan: TrialPlan) -> StepStatistic:
    """Return the name of the statistic that `typical_step_s` computes for a trial plan.

    The statistic is a mean, a median, or a median of rounds.
    """
    has_rare_exchanges_after_switch = plan.second_phase is not None and plan.second_phase.exchange_period > 1
    if plan.has_varying_worker_speeds or has_rare_exchanges_after_switch or plan.is_gossip:
        return "mean"
    return "median" if plan.exchange_period == 1 else "median round"


def mean_or_median_step_s(step_table: pd.DataFrame, plan: TrialPlan, steps_per_exchange: int = 1) -> float:
    """Return the median or the mean step time in seconds.

    If workers' speeds vary, or if only some steps have an exchange, return the mean over steps on whole batches,
    otherwise the median. Closed forms predict the same statistic.
    """
    seconds = step_table["step_s"].astype(float)
    is_mean = plan.has_varying_worker_speeds or steps_per_exchange > 1
    return float(seconds[_full_batch_mask(step_table, plan)].mean() if is_mean else seconds.median())


def steps_of_complete_exchanges(step_table: pd.DataFrame, plan: TrialPlan, steps_per_exchange: int) -> pd.DataFrame:
    """Return the steps of exchange rounds in which every step trained a whole batch.

    An exchange ends a round. Closed forms (formulas) describe only these steps. An epoch's last batch is often smaller.
    The result is empty where no round is whole, as when workers exchange once per epoch. The steps are those of one
    training phase.
    """
    on_whole_batch = _full_batch_mask(step_table, plan)
    if steps_per_exchange == 1 or step_table.empty:
        return step_table[on_whole_batch]
    rounds = [step_table["node"], (step_table["step"] - step_table["step"].min()) // steps_per_exchange]
    return step_table[on_whole_batch.groupby(rounds, observed=True).transform("sum") == steps_per_exchange]


def steps_of_all_complete_exchanges(trial: TrialLogTables) -> pd.DataFrame:
    """Return the steps of complete exchange rounds in all training phases of a trial.

    Return all steps if no round is complete.
    """
    in_whole_rounds = [
        steps_of_complete_exchanges(phase.steps, trial.plan, phase.exchange_period) for phase in training_phases(trial)
    ]
    steps = pd.concat(in_whole_rounds)
    return trial.steps if steps.empty else steps


def select_full_batch_steps(step_table: pd.DataFrame, plan: TrialPlan) -> pd.DataFrame:
    """Return the steps in which the workers together trained a whole batch."""
    return step_table[_full_batch_mask(step_table, plan)]


def step_phase_seconds(trial: TrialLogTables) -> dict[str, float] | None:
    """Return the mean seconds of each phase of a step, such as compute, over all workers.

    Return None without steps. Steps are those of `steps_of_complete_exchanges`, whose sum `predicted_mean_step_s`
    predicts; without a whole round they are all steps, and nothing is predicted. `exchange` is exposed communication,
    `wait` the waiting time as defined in the README; the two never overlap. other = mean(step) - sum of the phases,
    at least 0.
    """
    if trial.steps.empty:
        return None
    steps = steps_of_all_complete_exchanges(trial)
    means = {phase: float(steps[f"{phase}_s"].astype(float).mean()) for phase in STEP_PHASES}
    return means | {"other": max(0.0, float(steps["step_s"].mean()) - sum(means.values()))}


def mean_hidden_communication_s(trial: TrialLogTables) -> float | None:
    """Return the mean seconds of a step in which a collective is in flight and the worker computes.

    They are a part of the phase `compute`, over the steps of `step_phase_seconds`. They are measured where a strategy
    overlaps communication with compute, and in users' commands that use `torch.distributed`; return None for other
    trials.
    """
    if trial.steps.empty:
        return None
    hidden_s = steps_of_all_complete_exchanges(trial)["hidden_s"].dropna()
    return float(hidden_s.astype(float).mean()) if len(hidden_s) else None


def _full_batch_mask(step_table: pd.DataFrame, plan: TrialPlan) -> "pd.Series[bool]":
    """Return for each training step whether its global batch was full.

    Only the last batch of an epoch may be smaller.
    """
    has_smaller_last_batch = bool(plan.batch and plan.train_samples % plan.batch)
    steps_per_epoch = ceil(plan.train_samples / plan.batch) if has_smaller_last_batch else 0
    is_last = (step_table["step"] + 1) % steps_per_epoch == 0 if steps_per_epoch else step_table["step"] < 0
    return ~is_last.astype(bool)
