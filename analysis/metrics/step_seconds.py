"""How long does a step take?"""

from analysis.table import TrialTable


def step_seconds(trial: TrialTable) -> dict[str, float] | None:
    """Mean, median and 95th percentile over all workers and steps (virtual seconds, linear interpolation)."""
    seconds = trial.steps["step_s"].astype(float)
    if seconds.empty:
        return None
    return {"mean": seconds.mean(), "p50": float(seconds.quantile(0.5)), "p95": float(seconds.quantile(0.95))}
