"""Check that workers whose compute time is set by the scenario were not slower than declared."""

from analysis.checks.verdict import SLOW_HOST_REMEDY, CheckVerdict, VerdictLevel, disturbed_verdict, valid_verdict
from analysis.reading.run_table import TrialLogTables


def check_missed_step_deadlines(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `invalid` if workers missed the deadlines of too many step phases.

    The deadline of a step phase is its declared end. The share of phases with a missed deadline is compared with a
    limit.

    A deadline is missed if a step phase ends late by more than 1 ms of wall time, 5 % of the phase and 1 % of the step.
    The host was then too slow for the declared cluster. The largest valid share is a threshold of the trial.
    """
    paced = trial.nodes[trial.nodes["deadlines"].fillna(0) > 0]
    if paced.empty:
        return valid_verdict("no node is paced")
    missed, deadlines, limit = paced["missed_deadlines"], paced["deadlines"], trial.plan.fidelity.missed_deadlines
    share = float(missed.sum() / deadlines.sum())
    worst = str((missed / deadlines).set_axis(paced["node"]).idxmax())
    measured = f"{share:.1%} of the deadlines were missed (limit {limit:.1%})"
    if share <= limit:
        return valid_verdict(measured)
    advice = "declare slower workers, raise the dilation, or use the engine simulated"
    return disturbed_verdict(VerdictLevel.INVALID, f"{measured}, most by {worst}", advice, SLOW_HOST_REMEDY)
