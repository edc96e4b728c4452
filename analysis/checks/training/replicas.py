"""Do the replicas agree?"""

from analysis.checks.verdict import Verdict, degraded, invalid, valid
from analysis.reading.run_table import TrialTable


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
    if any(told["node"].nunique() < _replicas(trial, int(told["step"].iloc[0])) for _, told in by_step):
        return degraded("not every worker reported a hash of its parameters")
    return valid(f"replicas agree at all {len(by_step)} compared steps")


def _replicas(trial: TrialTable, step: int) -> int:
    """How many workers have parameters of their own after `step`: those that a switch promoted have none any more."""
    after, switch = trial.plan.after, trial.switch
    if after is None or switch is None or not switch.committed or step <= int(switch.committed["step"]):
        return trial.plan.workers
    return trial.plan.workers - len(after.promoted)
