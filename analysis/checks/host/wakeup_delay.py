"""Check that the host woke sleeping threads on time.

The canary, a thread that only sleeps, measures how late it wakes.
"""

from analysis.checks.engine_kind import ran_in_virtual_time
from analysis.checks.verdict import CheckVerdict, VerdictLevel, degraded_verdict, disturbed_verdict, valid_verdict
from analysis.reading.run_table import TrialLogTables


def check_wakeup_delay(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `degraded` if a thread that only sleeps woke too late.

    The thread is called the canary. Its lateness at the 99th percentile is compared with a limit.

    The verdict is never invalid: late threads that slow a declared device also cause missed deadlines, which
    `check_missed_step_deadlines` finds.
    """
    if ran_in_virtual_time(trial):
        return valid_verdict("virtual time does not depend on the host")
    late_ms = (trial.status.get("host") or {}).get("canary_late_ms") or {}
    if "p99" not in late_ms:
        return degraded_verdict("the wake-up delay of the canary thread was not recorded")
    limit_ms = 1e3 * trial.plan.fidelity.canary
    measured = f"a thread that only sleeps woke {late_ms['p99']:.2g} ms late at the 99th percentile"
    if late_ms["p99"] > limit_ms:
        advice = "stop other programs on this host"
        return disturbed_verdict(VerdictLevel.DEGRADED, f"{measured} (limit {limit_ms:g} ms)", advice)
    return valid_verdict(measured)
