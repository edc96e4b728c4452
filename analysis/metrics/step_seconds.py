"""How long does a step take?"""

from typing import Literal

import pandas as pd

from analysis.reading.plan_view import PlanView
from analysis.reading.run_table import TrialTable

Typical = Literal["median", "median round", "mean"]


def step_seconds(trial: TrialTable) -> dict[str, float] | None:
    """Mean, median and 95th percentile over all workers and steps (virtual seconds, linear interpolation)."""
    seconds = trial.steps["step_s"].astype(float)
    if seconds.empty:
        return None
    return {"mean": seconds.mean(), "p50": float(seconds.quantile(0.5)), "p95": float(seconds.quantile(0.95))}


def typical_step_s(trial: TrialTable) -> float | None:
    """What a closed form's step is compared with: the centre over rounds of a round's mean step.

    A round is what lies between two exchanges: for most strategies one step, so that this is the centre of all steps.
    One that ended before its exchange is left out, unless there is no other.
    """
    if trial.steps.empty:
        return None
    if trial.plan.exchange_period == 1 and not trial.steps.duplicated(["node", "step"]).any():
        return centre_s(trial.steps, trial.plan)  # every step is a round
    steps = trial.steps.assign(round=trial.steps["step"] // trial.plan.exchange_period)
    found = steps.groupby(["node", "round"])[["step_s", "samples"]].agg({"step_s": ["mean", "size"], "samples": "sum"})
    found.columns = pd.Index(["step_s", "size", "samples"])
    whole = found[found["size"] == trial.plan.exchange_period]
    return centre_s(found if whole.empty else whole, trial.plan)


def typical_of(plan: PlanView) -> Typical:
    """What `typical_step_s` is of the steps."""
    if plan.has_varying_speeds:
        return "mean"
    return "median" if plan.exchange_period == 1 else "median round"


def centre_s(steps: pd.DataFrame, plan: PlanView) -> float:
    """The median of `step_s`; where speeds vary the mean, which closed forms tell then, of steps on whole batches."""
    seconds = steps["step_s"].astype(float)
    return float(seconds[_on_whole_batches(steps)].mean() if plan.has_varying_speeds else seconds.median())


def whole_rounds(steps: pd.DataFrame, every: int) -> pd.DataFrame:
    """The steps that closed forms are of: rounds of `every` steps, each on a whole batch.

    An epoch's last batch is often smaller. Empty where no round is whole, as when workers exchange once per epoch.
    """
    whole = _on_whole_batches(steps)
    if every == 1 or steps.empty:
        return steps[whole]
    rounds = [steps["node"], steps["step"] // every]
    return steps[whole.groupby(rounds, observed=True).transform("sum") == every]


def _on_whole_batches(steps: pd.DataFrame) -> "pd.Series[bool]":
    """Whether a step was on as many samples as its worker ever had."""
    return steps["samples"] >= steps.groupby("node", observed=True)["samples"].transform("max")
