"""Did the host have cores to spare?"""

from analysis.checks.evidence import in_virtual_time
from analysis.checks.verdict import Verdict, degraded, valid
from analysis.reading.run_table import TrialTable


def host_cpu(trial: TrialTable) -> Verdict:
    """Degraded when the host was busier than the threshold: timings may be the host's, not the cluster's.

    Only degraded, since a busy host that still met every deadline emulated what it was asked to.
    """
    if in_virtual_time(trial):
        return valid("virtual time does not depend on the host")
    busy = (trial.status.get("host") or {}).get("cpu_busy")
    if busy is None:
        return degraded("the host's CPU load was not recorded")
    limit = trial.plan.fidelity.host_cpu
    found = f"host CPU {busy:.0%} busy (limit {limit:.0%})"
    return degraded(found) if busy > limit else valid(found)
