"""Staleness of the gradients that servers applied."""

from typing import Any

from analysis.reading.run_table import TrialLogTables


def staleness_statistics(trial: TrialLogTables) -> dict[str, Any] | None:
    """Return mean, maximum and histogram of the staleness of applied gradients.

    Only gradients that were applied to the first shard are counted. Without servers, workers log the staleness of their
    own gradients: the averages with other workers during the computation of a gradient (AD-PSGD).

    The staleness of a gradient is the number of updates applied between the worker's pull of the parameters and its
    push of the gradient. With n equal workers and no waiting its mean tends to n - 1 (Zhang et al., Staleness-aware
    async-SGD, IJCAI 2016). None where no server applied updates,
    and no worker logged a staleness.
    """
    source = trial.steps if trial.updates.empty else trial.updates
    staleness = source["staleness"].dropna().astype(int)
    if staleness.empty:
        return None
    counts = staleness.value_counts().sort_index()
    histogram = {str(updates): int(count) for updates, count in counts.items()}
    return {"mean": float(staleness.mean()), "max": int(staleness.max()), "histogram": histogram}
