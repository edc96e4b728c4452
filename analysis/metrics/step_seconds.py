"""How long does a step take?"""

from analysis.table import TrialTable


def step_seconds(trial: TrialTable) -> dict[str, float] | None:
    """Mean, median and 95th percentile over all workers and steps (virtual seconds, linear interpolation)."""
    seconds = trial.steps["step_s"].astype(float)
    if seconds.empty:
        return None
    return {"mean": seconds.mean(), "p50": float(seconds.quantile(0.5)), "p95": float(seconds.quantile(0.95))}


def typical_step_s(trial: TrialTable) -> float | None:
    """What a closed form's step is compared with: the median over rounds of a round's mean step.

    A round is what lies between two exchanges: for most strategies one step, so that this is the median step. One that
    ended before its exchange is left out, unless there is no other.
    """
    steps = trial.steps.assign(round=trial.steps["step"] // trial.plan.exchanges_every)
    if steps.empty:
        return None
    found = steps.groupby(["node", "round"])["step_s"].agg(["mean", "size"]).astype(float)
    whole = found[found["size"] == trial.plan.exchanges_every]
    return float((found if whole.empty else whole)["mean"].median())
