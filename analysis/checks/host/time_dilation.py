"""Check that the time dilation of the trial was as large as this host needs.

Time dilation is the factor by which the emulated clock is slower than the real one.
"""

from analysis.checks.verdict import SLOW_HOST_REMEDY, CheckVerdict, invalid_verdict, valid_verdict
from analysis.reading.run_table import TrialLogTables

ROUNDING_SLACK = 1e-9  # tolerance of a dilation, the same as in the check of the host's capacity before the run


def check_time_dilation(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `invalid` if the trial ran at a lower time dilation than the host needs.

    The dilation is the factor by which the emulated clock is slower than the real one. How much a trial needs follows
    from the host's measured capacity.
    """
    demands = trial.capacity_check.get("demands") or []
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
