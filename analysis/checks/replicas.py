"""Do the replicas agree?"""

from analysis.checks.verdict import Verdict, degraded, invalid, valid
from analysis.table import TrialTable


def replicas(trial: TrialTable) -> Verdict:
    """Invalid when workers of a synchronous strategy report different parameters for the same step.

    Sums are formed in a fixed order, so replicas must agree to the last bit.
    """
    if trial.plan.workers == 1:
        return valid("one replica")
    if trial.plan.synchrony == "asynchronous":
        return valid("replicas of an asynchronous strategy may differ")
    by_step = trial.hashes[trial.hashes["node"].str.startswith("worker")].groupby("step")
    if not len(by_step):
        return degraded("no worker reported a hash of its parameters")
    differing = by_step["sha256"].nunique() > 1
    if differing.any():
        return invalid(f"replicas differ at step {differing[differing].index[0]}")
    if (by_step["node"].nunique() < trial.plan.workers).any():
        return degraded("not every worker reported a hash of its parameters")
    return valid(f"replicas agree at all {len(by_step)} compared steps")
