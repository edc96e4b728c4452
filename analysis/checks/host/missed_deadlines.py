"""Did the paced devices keep their declared speed?"""

from analysis.checks.verdict import SLOWER, Verdict, invalid, valid
from analysis.reading.run_table import TrialTable


def missed_deadlines(trial: TrialTable) -> Verdict:
    """Invalid when the workers together missed more than the threshold's share of their deadlines.

    A deadline is missed when it is met later than 1 ms on the wall, than 5 % of the phase and than 1 % of the step: the
    host was too slow for this cluster.
    """
    paced = trial.nodes[trial.nodes["deadlines"].fillna(0) > 0]
    if paced.empty:
        return valid("no node is paced")
    missed, deadlines, limit = paced["missed_deadlines"], paced["deadlines"], trial.plan.fidelity.missed_deadlines
    share = float(missed.sum() / deadlines.sum())
    worst = str((missed / deadlines).set_axis(paced["node"]).idxmax())
    found = f"{share:.1%} of the deadlines were missed (limit {limit:.1%}), most by {worst}"
    return invalid(found, SLOWER) if share > limit else valid(f"{share:.1%} of the deadlines were missed")
