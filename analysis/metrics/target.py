"""When was the target first reached?"""

from typing import TYPE_CHECKING

from analysis.reading.run_table import TrialTable

if TYPE_CHECKING:
    import pandas as pd  # only the type: Series is generic for type checkers alone


def first_hit(trial: TrialTable) -> "pd.Series[float] | None":
    """The row of `evals` that first reached the target; None without a target or when it was missed."""
    target = trial.plan.target
    if target is None:
        return None
    told = zip(trial.evals["metric"], trial.evals["value"], strict=True)
    hits = [
        row for row, (name, value) in enumerate(told) if name == target.metric and target.is_reached_by(float(value))
    ]
    return trial.evals.iloc[min(hits, key=trial.evals["time_s"].tolist().__getitem__)] if hits else None
