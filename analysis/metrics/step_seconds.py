"""How long does a step take?"""

import pandas as pd

from analysis.plan import PlanView
from analysis.table import TrialTable


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
    steps = trial.steps.assign(round=trial.steps["step"] // trial.plan.exchanges_every)
    if steps.empty:
        return None
    found = steps.groupby(["node", "round"])[["step_s", "samples"]].agg({"step_s": ["mean", "size"], "samples": "sum"})
    found.columns = pd.Index(["step_s", "size", "samples"])
    whole = found[found["size"] == trial.plan.exchanges_every]
    return centre_s(found if whole.empty else whole, trial.plan)


def centre_s(steps: pd.DataFrame, plan: PlanView) -> float:
    """The median of `step_s`; where speeds vary the mean, which closed forms tell then, of steps on whole batches."""
    seconds = steps["step_s"].astype(float)
    if not plan.speeds_vary:
        return float(seconds.median())
    whole = steps["samples"] >= steps.groupby("node")["samples"].transform("max")
    return float(seconds[whole].mean())
