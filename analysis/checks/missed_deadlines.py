"""Did the paced devices keep their declared speed?"""

from analysis.checks.verdict import Verdict, invalid, valid
from analysis.table import TrialTable


def missed_deadlines(trial: TrialTable) -> Verdict:
    """Invalid when the worst node missed more than the threshold's share of its deadlines.

    A deadline is missed when it is met later than max(1 ms, 5 % of the phase): the host was too slow for this cluster.
    """
    paced = trial.nodes[trial.nodes["deadlines"].fillna(0) > 0]
    if paced.empty:
        return valid("no node is paced")
    shares = (paced["missed_deadlines"] / paced["deadlines"]).set_axis(paced["node"])
    node, share, limit = str(shares.idxmax()), float(shares.max()), trial.plan.fidelity.missed_deadlines
    found = f"{node} missed {share:.1%} of its deadlines (limit {limit:.1%})"
    return invalid(found) if share > limit else valid(found)
