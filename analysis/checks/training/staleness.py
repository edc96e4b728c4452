"""Check that the logged staleness of gradients fits the order of updates and stays within the declared bound."""

import numpy as np
import pandas as pd

from analysis.checks.verdict import CheckVerdict, invalid_verdict, valid_verdict
from analysis.metrics.learning.staleness import staleness_statistics
from analysis.reading.run_table import TrialLogTables


def check_gradient_staleness(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `invalid` if the staleness of a gradient is wrong or too large.

    The staleness is wrong if it contradicts the order of updates, and too large if it exceeds the declared bound.

    Without waiting, a worker reads the parameters right after its own update. The staleness of its next gradient is the
    number of updates by other workers since then. For n workers of any speeds, the mean staleness over a long run is
    n - 1 (Zhang et al., Staleness-aware async-SGD, IJCAI 2016).
    With a bound, no gradient may come from a step that is further ahead of the slowest worker than the bound. Workers
    that have stopped do not count.
    """
    found = staleness_statistics(trial)
    if found is None or (trial.plan.sync_or_async == "synchronous" and trial.plan.second_phase is None):
        return valid_verdict("no gradient is stale")
    mean = f"mean staleness {found['mean']:.2f}"
    if trial.updates.empty:
        return valid_verdict(f"{mean}, at most {found['max']}, as logged by the workers")
    if trial.plan.second_phase:
        return valid_verdict(f"{mean} over all updates of both strategies")
    synchrony, updates = trial.plan.strategy.get("synchrony") or {}, trial.updates.dropna()
    if synchrony.get("kind") == "asp" and not _may_strategy_drop_gradients(trial):
        return _verify_logged_staleness(updates, f"{mean}; {trial.plan.workers - 1} is expected over a long run")
    if synchrony.get("kind") in ("ssp", "dssp"):
        bound = int(synchrony.get("staleness", synchrony.get("high", 0)))
        return _check_staleness_bound(bound, updates, f"{mean}, at most {found['max']}")
    return valid_verdict(f"{mean}, at most {found['max']}, under {trial.plan.synchronisation_policy_kind}")


def _may_strategy_drop_gradients(trial: TrialLogTables) -> bool:
    """Return whether the strategy may drop gradients that servers have received."""
    return (trial.plan.strategy.get("staleness") or {}).get("kind") == "cut_off"


def _verify_logged_staleness(logged_updates: pd.DataFrame, staleness_summary: str) -> CheckVerdict:
    """Compare the logged staleness of gradients with the staleness that follows from the order of updates."""
    read_version = logged_updates.groupby("worker")["version"].shift(fill_value=0)  # made by the worker's last update
    expected = logged_updates["version"] - 1 - read_version
    differing = logged_updates[logged_updates["staleness"] != expected]
    if differing.empty:
        return valid_verdict(staleness_summary)
    first = differing.iloc[0]
    return invalid_verdict(
        f"update {first['version']:.0f} used a gradient of staleness {first['staleness']:.0f}; "
        f"the order of updates gives {expected[differing.index[0]]:.0f}"
    )


def _check_staleness_bound(staleness_bound: int, logged_updates: pd.DataFrame, staleness_summary: str) -> CheckVerdict:
    """Return the verdict `invalid` if a worker was too far ahead of the slowest worker.

    The staleness bound is the number of steps that a worker may be ahead.
    """
    worker, step = (logged_updates[column].to_numpy(float) for column in ("worker", "push_step"))
    slowest = np.full(len(logged_updates), np.inf)
    for rank in np.unique(worker):
        own = np.flatnonzero(worker == rank)
        steps_done = np.searchsorted(own, np.arange(own[-1] + 1))  # updates by this worker before each update
        slowest[: own[-1] + 1] = np.minimum(slowest[: own[-1] + 1], steps_done)
    ahead = int((step - slowest).max(initial=0))
    reason = f"{staleness_summary}; at most {ahead} steps ahead of the slowest worker (limit {staleness_bound})"
    return valid_verdict(reason) if ahead <= staleness_bound else invalid_verdict(reason)
