"""When was the target first reached?"""

from typing import TYPE_CHECKING

from analysis.table import TrialTable

if TYPE_CHECKING:
    import pandas as pd  # only the type: Series is generic for type checkers alone


def first_hit(trial: TrialTable) -> "pd.Series[float] | None":
    """The row of `evals` that first reached the target; None without a target or when it was missed."""
    target = trial.plan.target
    if target is None:
        return None
    evals = trial.evals[trial.evals["metric"] == target.metric]
    hits = evals[[target.reached_by(float(value)) for value in evals["value"]]]
    return None if hits.empty else hits.sort_values("time_s", kind="stable").iloc[0]
