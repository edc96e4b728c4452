"""Did the host let threads run when their time had come?"""

from analysis.checks.evidence import in_virtual_time
from analysis.checks.verdict import Verdict, degraded, valid
from analysis.reading.run_table import TrialTable


def canary(trial: TrialTable) -> Verdict:
    """Degraded when a thread that only sleeps woke later than the threshold at its 99th percentile.

    Only degraded, as for a busy host: what it did to declared speeds shows in missed deadlines.
    """
    if in_virtual_time(trial):
        return valid("virtual time does not depend on the host")
    late = (trial.status.get("host") or {}).get("canary_late_ms") or {}
    if "p99" not in late:
        return degraded("the lateness of a sleeping thread was not recorded")
    limit_ms = 1e3 * trial.plan.fidelity.canary
    found = f"a sleeping thread woke {late['p99']:.2g} ms late at its 99th percentile"
    return degraded(f"{found} (limit {limit_ms:g} ms)") if late["p99"] > limit_ms else valid(found)
