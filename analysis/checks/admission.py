"""Could the host carry what was declared?"""

from analysis.checks.verdict import Verdict, invalid, valid
from analysis.table import TrialTable


def admission(trial: TrialTable) -> Verdict:
    """Invalid when a trial ran at a lower dilation than the host's measured capacity admits."""
    record = (trial.status.get("host") or {}).get("admission") or {}
    needed = record.get("needed_dilation")
    if needed is None:
        return valid("no measured capacity to compare with")
    if trial.plan.dilation < needed:
        return invalid(f"this host carries it at dilation {needed:g}, not at {trial.plan.dilation:g}")
    return valid(f"dilation {trial.plan.dilation:g}; this host carries it from {needed:g} on")
