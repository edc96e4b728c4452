"""How old were the parameters that a gradient was computed from?"""

from typing import Any

from analysis.reading.run_table import TrialTable


def staleness(trial: TrialTable) -> dict[str, Any] | None:
    """Mean, maximum and histogram of the updates applied between a worker's pull and its push, on the first shard.

    With n equal workers and no waiting the mean tends to n - 1 (Zhang et al., Staleness-aware async-SGD, IJCAI 2016).
    None where no server applied updates.
    """
    ages = trial.updates["staleness"].dropna().astype(int)
    if ages.empty:
        return None
    counts = ages.value_counts().sort_index()
    return {
        "mean": float(ages.mean()),
        "max": int(ages.max()),
        "histogram": {str(age): int(count) for age, count in counts.items()},
    }
