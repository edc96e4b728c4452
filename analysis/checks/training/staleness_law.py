"""Are gradients as old as the order of updates makes them, and is nobody further ahead than allowed?"""

import numpy as np
import pandas as pd

from analysis.checks.verdict import Verdict, invalid, valid
from analysis.metrics.staleness import staleness
from analysis.reading.run_table import TrialTable


def staleness_law(trial: TrialTable) -> Verdict:
    """Invalid when an age contradicts the order of updates, or a step the bound of who waits for whom.

    Where nobody waits, a worker reads what its own last update made, so a gradient is as old as others have updated
    since: whatever the speeds, the mean over a long run is n - 1 (Zhang et al., Staleness-aware async-SGD, IJCAI 2016).
    Under a bound no gradient may come of a step further ahead of the slowest; who has left holds up nobody.
    """
    ages = staleness(trial)
    if ages is None or (trial.plan.synchrony == "synchronous" and trial.plan.after is None):
        return valid("no gradient is stale")
    mean = f"mean staleness {ages['mean']:.2f}"
    if trial.plan.after:
        return valid(f"{mean} over all updates of both strategies")
    synchrony, updates = trial.plan.strategy.get("synchrony") or {}, trial.updates.dropna()
    if synchrony.get("kind") == "asp" and not _drops(trial):
        return _as_ordered(updates, f"{mean}, {trial.plan.workers - 1} over a long run")
    if synchrony.get("kind") in ("ssp", "dssp"):
        bound = int(synchrony.get("staleness", synchrony.get("high", 0)))
        return _within(bound, updates, f"{mean}, at most {ages['max']}")
    return valid(f"{mean}, at most {ages['max']}, under {trial.plan.kind_of_synchrony}")


def _drops(trial: TrialTable) -> bool:
    """Whether some gradients are read and never become an update."""
    return (trial.plan.strategy.get("staleness") or {}).get("kind") == "cut_off"


def _as_ordered(updates: pd.DataFrame, found: str) -> Verdict:
    read = updates.groupby("worker")["version"].shift(fill_value=0)  # what a worker's last update made
    age = updates["version"] - 1 - read
    odd = updates[updates["staleness"] != age]
    if odd.empty:
        return valid(found)
    first = odd.iloc[0]
    told = f"update {first['version']:.0f} is by a gradient of age {first['staleness']:.0f}"
    return invalid(f"{told}; {age[odd.index[0]]:.0f} is what the order of updates makes it")


def _within(bound: int, updates: pd.DataFrame, found: str) -> Verdict:
    worker, step = (updates[column].to_numpy(float) for column in ("worker", "push_step"))
    slowest = np.full(len(updates), np.inf)
    for each in np.unique(worker):
        own = np.flatnonzero(worker == each)
        done = np.searchsorted(own, np.arange(own[-1] + 1))  # steps of it that updates have come of before
        slowest[: own[-1] + 1] = np.minimum(slowest[: own[-1] + 1], done)
    ahead = int((step - slowest).max(initial=0))
    found = f"{found}; {ahead} steps ahead of the slowest at most, of {bound}"
    return valid(found) if ahead <= bound else invalid(found)
