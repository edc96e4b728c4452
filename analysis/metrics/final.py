"""How good was the model in the end?"""

from analysis.reading.run_table import TrialTable


def final_metrics(trial: TrialTable) -> dict[str, float]:
    """The last value of every metric."""
    last = trial.evals.sort_values("time_s", kind="stable").groupby("metric", sort=False)["value"].last()
    return {str(metric): float(value) for metric, value in last.items()}
