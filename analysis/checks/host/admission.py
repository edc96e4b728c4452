"""Check that the trial ran at a dilation that the host's measured capacity admits."""

from analysis.checks.verdict import SLOW_HOST_REMEDY, CheckVerdict, invalid_verdict, valid_verdict
from analysis.reading.run_table import TrialTable

ROUNDING_SLACK = 1e-9  # tolerance of a dilation, the same as in the admission check before the run


def check_admitted_dilation(trial: TrialTable) -> CheckVerdict:
    """Return an invalid verdict if the trial ran at a lower dilation than the host's measured capacity admits."""
    demands = trial.admission.get("demands") or []
    needs: dict[str, float] = next((demand["needs"] for demand in demands if demand["trial"] == trial.plan.trial), {})
    if not needs:
        return valid_verdict("the trial has no demand that this host could fail to meet")
    needed = max(needs.values())
    if trial.plan.dilation < needed - ROUNDING_SLACK:
        reason = (
            f"the trial ran at dilation {trial.plan.dilation:g}, but this host needs at least {needed:g}; raise the "
            "dilation, declare slower workers or links, or use the engine simulated"
        )
        return invalid_verdict(reason, SLOW_HOST_REMEDY)
    return valid_verdict(f"dilation {trial.plan.dilation:g}; this host needs at least {needed:g}")
