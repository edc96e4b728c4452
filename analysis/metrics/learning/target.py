"""Time to target and samples to target of a trial, and the evaluations before the target."""

from typing import Literal

import pandas as pd

from analysis.reading.plan_view import TrialPlan
from analysis.reading.run_table import TrialLogTables

# shared: parameters that all workers or the servers have in common
# mean: mean over the parameters of all workers
# worker_0_then_mean: during training the parameters of worker-0, and after it the mean over all workers
EvaluatedModel = Literal["shared", "mean", "worker_0_then_mean"]


def evaluated_model(plan: TrialPlan) -> EvaluatedModel | None:
    """Return which parameters the evaluations of a trial measure, on which its target is decided.

    None for a user's command, whose script decides.
    """
    if plan.workload_kind == "command":
        return None
    if plan.workers > 1 and plan.chooses_partners:
        return "worker_0_then_mean"
    return "mean" if plan.is_gossip else "shared"


def first_evaluation_at_target(trial: TrialLogTables) -> "pd.Series[float] | None":
    """Return the first evaluation that reached the training target, as a row of `evals`.

    Return None if none did.
    """
    target = trial.plan.target
    if target is None:
        return None
    evaluations = zip(trial.evals["metric"], trial.evals["value"], strict=True)
    hits = [
        row
        for row, (metric, value) in enumerate(evaluations)
        if metric == target.metric and target.is_reached_by(float(value))
    ]
    return trial.evals.iloc[min(hits, key=trial.evals["time_s"].tolist().__getitem__)] if hits else None


def time_to_target_s(trial: TrialLogTables) -> float | None:
    """Return the seconds from the start of training to the first evaluation that reached the target.

    From the log event `run_start`, evaluations included. None where the target was not reached. Source: MLPerf Training
    rules, "the clock runs from data access to target quality".
    """
    evaluation = first_evaluation_at_target(trial)
    return None if evaluation is None else float(evaluation["time_s"])


def samples_to_target(trial: TrialLogTables) -> int | None:
    """Return the samples that all workers had trained on at the first evaluation that reached the target.

    None where no evaluation reached the target, or samples were not recorded.

    The number does not depend on how fast nodes and links are, so it isolates what a strategy costs in learning
    (statistical efficiency: Qiao et al., Pollux, OSDI 2021).
    """
    evaluation = first_evaluation_at_target(trial)
    return None if evaluation is None or pd.isna(evaluation["samples"]) else int(evaluation["samples"])


def evaluation_count(trial: TrialLogTables) -> int:
    """Return the number of evaluations up to the first that reached the target; of all evaluations if none did.

    Evaluations after the target are not counted: asynchronous workers end some time after it.
    """
    return len(_evaluations_up_to_target(trial))


def evaluation_seconds(trial: TrialLogTables) -> float | None:
    """Return the seconds of the evaluations that `evaluation_count` counts; None where they were not logged.

    Synchronous workers wait for evaluations, so these seconds are part of the time to target. In virtual time an
    evaluation takes no time.
    """
    durations_s = _evaluations_up_to_target(trial)["duration_s"]
    return None if durations_s.isna().any() else float(durations_s.sum())


def _evaluations_up_to_target(trial: TrialLogTables) -> pd.DataFrame:
    """Return one row of `evals` per evaluation, up to the evaluation that reached the target, or all of them."""
    metric = trial.plan.target.metric if trial.plan.target else next(iter(trial.evals["metric"]), None)
    evaluations, reached = trial.evals[trial.evals["metric"] == metric], first_evaluation_at_target(trial)
    return evaluations if reached is None else evaluations.loc[: reached.name]


def evaluation_interval_samples(trial: TrialLogTables) -> int | None:
    """Return how many samples lie between the evaluation that reached the target and the one before.

    None where no evaluation reached the target. The model was good enough somewhere in this interval, so samples to
    target and time to target are rounded up by at most this much.
    """
    evaluation = first_evaluation_at_target(trial)
    if evaluation is None or pd.isna(evaluation["samples"]):
        return None
    before = trial.evals["samples"][trial.evals["time_s"] < evaluation["time_s"]].dropna()
    return int(evaluation["samples"] - before.max()) if before.size else int(evaluation["samples"])
