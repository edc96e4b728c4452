"""Could the host carry what was declared?"""

from analysis.checks.verdict import SLOWER, Verdict, invalid, valid
from analysis.reading.run_table import TrialTable

SLACK = 1e-9  # rounding, as admission allows itself


def admission(trial: TrialTable) -> Verdict:
    """Invalid when a trial ran at a lower dilation than the host's measured capacity admits."""
    demands = trial.admission.get("demands") or []
    needs: dict[str, float] = next((each["needs"] for each in demands if each["trial"] == trial.plan.trial), {})
    if not needs:
        return valid("nothing is declared that this host could lack")
    needed = max(needs.values())
    if trial.plan.dilation < needed - SLACK:
        return invalid(f"this host carries it at dilation {needed:g}, not at {trial.plan.dilation:g}", SLOWER)
    return valid(f"dilation {trial.plan.dilation:g}; this host carries it from {needed:g} on")
